"""``jupyter gpu attach RUN`` on a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from feeds import Reading
from ray_bed import request

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.session import GatewaySession

Until = Callable[[Callable[[], object], str], None]


@pytest.fixture(autouse=True)
def _home(cluster: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(Path(cluster.connection.token_file).parent))


@pytest.fixture
def session(cluster: Ready) -> Iterator[GatewaySession]:
    connection = cluster.connection
    made = GatewaySession(Target(connection.url, read_secret(Path(connection.token_file))), "attaching")
    made.connect(60.0)
    yield made
    made.close()


@pytest.mark.slow("the first of a session starts its cluster")
def test_a_run_that_is_over_plays_back_and_its_state_is_the_exit_status(
    session: GatewaySession, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        "import sys\nfrom IPython.display import display, HTML\n"
        "for n in range(0, 101): sys.stderr.write(f'\\r{n}%')\n"
        "print('\\nepoch done')\ndisplay(HTML('<b>x</b>'))"
    )
    good, bad = request(script, "attaching"), request("print('so far')\n1 / 0", "attaching")
    for asked in (good, bad):
        Reading(session.submit(asked)).end()
    assert main(["attach", good.run]) == 0
    shown = capsys.readouterr()
    assert "epoch done\n<IPython.core.display.HTML object>\n" in shown.out
    assert shown.err.count("%") == 1
    assert "100%" in shown.err
    assert f"[{good.run} succeeded" in shown.err
    assert main(["attach", "last"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "so far\n"
    assert "ZeroDivisionError" in shown.err
    assert "\x1b" not in shown.err, "colours are for a terminal"
    assert f"[{bad.run} failed" in shown.err


def test_a_live_run_is_followed_and_left_going_on(session: GatewaySession, tmp_path: Path, until: Until) -> None:
    go = tmp_path / "go"
    asked = request(
        f"import os, time\nprint('begun', flush=True)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        "print('ended')",
        "attaching",
    )
    reading = Reading(session.submit(asked))
    reading.state("running")
    command = [sys.executable, "-m", "jupyter_gpu_release.cli", "attach", asked.run]
    leaver, stayer = (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(2)
    )
    assert [process.stdout.readline() for process in (leaver, stayer) if process.stdout] == ["begun\n"] * 2
    leaver.send_signal(signal.SIGINT)
    assert f"{asked.run} goes on" in leaver.communicate(timeout=180)[1]
    assert leaver.returncode == 130
    go.touch()
    assert stayer.communicate(timeout=180)[0] == "ended\n"
    assert stayer.returncode == 0
    assert reading.end().state == "succeeded"


def test_who_cancelled_it_is_told_so(
    cluster: Ready, session: GatewaySession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The feed names the user; the reader is that user, and is told as everywhere else."""
    asked = request("import time\nwhile True: time.sleep(0.02)", "attaching")
    reading = Reading(session.submit(asked))
    reading.state("running")
    assert main(["cancel", asked.run]) == 0
    reading.end()
    assert main(["attach", asked.run]) == 1
    assert f"[{asked.run} cancelled by you, held " in capsys.readouterr().err


def test_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "20000101-000000-00000000"]) == 1
    assert "there is no run" in capsys.readouterr().err
    assert main(["attach", "nonsense"]) == 1
