"""The store vanishes while results are being written: no GPU is held, no byte is lost, everybody is told."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from disks import tmpfs
from embedded_bed import named
from fault_bed import Cluster
from kernel_bed import Notebook

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.errors import GatewayUnavailableError
from jupyter_gpu_release.host.process_control import PERSISTER
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded

Open = Callable[[Cluster], Notebook]
Until = Callable[[Callable[[], object], str], None]
# parts of a cluster begin anew: minutes on a machine that is busy
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]
#: 16 MiB, made while the store goes away
_LARGE = (
    "%%gpu_train\nimport pathlib, time\nimport numpy as np\ntable = np.arange(1 << 21)\nprint('made', flush=True)\n"
    "while not pathlib.Path('go').exists():\n    time.sleep(0.02)"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomePaths]:
    """Of a cluster that is stopped and started again."""
    home = HomePaths(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPU_PRELOAD", "numpy")
        yield home
        stop_embedded(home)


@pytest.fixture(scope="module")
def whole(home: HomePaths) -> Iterator[Cluster]:
    """The cluster until the last test stops it."""
    cluster = Cluster(start_embedded(home=home, asked=StartOptions(simulated=2), progress=print))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(home: HomePaths, whole: Cluster) -> Iterator[Cluster]:
    yield whole
    away = home.root / "store-away"
    if away.exists():  # a test that failed
        away.rename(home.store)


def _persisting(cluster: Cluster, notebook: Notebook, until: Until) -> tuple[str, Path]:
    """A cell whose store is renamed before its results are written; returns it once the run is persisting."""
    cell = notebook.begin(_LARGE)
    notebook.until(lambda shown: "made" in shown.text())
    away = cluster.home / "store-away"
    (cluster.home / "store").rename(away)
    (notebook.folder / "go").touch()
    until(lambda: cluster.last_run()["next_try_at"], "the run says why it is persisting")
    (notebook.folder / "go").unlink()
    return cell, away


def _persisters(cluster: Cluster) -> list[psutil.Process]:
    return named(PERSISTER, (found.pid for found in cluster.find("")))


def _shown_run(cluster: Cluster, run: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = json.loads(cluster.cli("runs", "show", run, "--json"))["runs"]
    return rows[0]


def test_agent_and_gateway_are_killed_while_the_store_is_away(
    cluster: Cluster, open_notebook: Open, until: Until
) -> None:
    notebook = open_notebook(cluster)
    cell, away = _persisting(cluster, notebook, until)
    run = cluster.last_run()
    assert run["state"] == "persisting"
    assert str(cluster.home / "store") in run["waits_for"]
    assert "16 MiB of results cannot be written" in run["waits_for"]
    assert cluster.status()["gpus"]["held"] == 0
    assert cluster.placement_groups() == []
    assert "is not there" in cluster.cli("status")
    notebook.until(lambda shown: any("is not there" in text for text in shown.displays()))
    cluster.kill("ray::NodeAgent")
    until(lambda: cluster.find("ray::NodeAgent"), "the node agent is back")
    cluster.kill("ray::Gateway")
    until(lambda: _next_try(cluster), "the gateway is back and knows what the run waits for")
    until(lambda: "takes no runs" in cluster.cli("status"), "the node says what hinders it")
    other = open_notebook(cluster)
    waiting = other.begin("%%gpu_train\nx = 1")
    until(lambda: ["is not there" in row["reason"] for row in cluster.status()["queue"]] == [True], "it waits")
    assert not (cluster.home / "store").exists()  # made anew it would hide the results later
    away.rename(cluster.home / "store")
    assert other.end(waiting).status == "ok"
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert notebook.value("[int(table[-1]), len(table)]") == [(1 << 21) - 1, 1 << 21]
    until(lambda: _shown_run(cluster, run["run"])["state"] == "succeeded", "the run has succeeded")
    assert _shown_run(cluster, run["run"])["waits_for"] == ""
    until(lambda: not any(cluster.home.glob("spool/*/2*")), "nothing is left in the spool")


def _next_try(cluster: Cluster) -> float | None:
    try:
        at_s: float | None = cluster.last_run()["next_try_at"]
    except GatewayUnavailableError:  # it is being restarted
        return None
    return at_s


def test_cancelling_gives_the_results_up_and_says_so(cluster: Cluster, open_notebook: Open, until: Until) -> None:
    notebook = open_notebook(cluster)
    cell, away = _persisting(cluster, notebook, until)
    notebook.interrupt()  # the cell does not wait any longer, the run does
    shown = notebook.end(cell)
    assert "they are kept with run" in shown.traceback
    run = cluster.last_run()
    assert run["state"] == "persisting"
    cluster.cli("cancel", run["run"])
    until(lambda: _shown_run(cluster, run["run"])["state"] == "cancelled", "the run is cancelled")
    assert "given up" in _shown_run(cluster, run["run"])["reason"]
    assert "table" in _shown_run(cluster, run["run"])["reason"]
    until(lambda: not _persisters(cluster), "nobody keeps them any more")
    away.rename(cluster.home / "store")


def test_a_disk_that_is_full_then_read_only_holds_no_gpu(cluster: Cluster, open_notebook: Open, until: Until) -> None:
    notebook, other = open_notebook(cluster), open_notebook(cluster)
    store = cluster.home / "store"
    name = (store / "store.json").read_bytes()
    with tmpfs(store, "8m"):
        (store / "runs").mkdir()
        (store / "store.json").write_bytes(name)
        cell = notebook.begin(_LARGE)
        notebook.until(lambda shown: "made" in shown.text())
        (notebook.folder / "go").touch()
        until(lambda: "No space left" in cluster.last_run()["waits_for"], "the run says that the disk is full")
        run = cluster.last_run()
        values = store / "runs" / run["run"] / "values.graph"
        assert run["state"] == "persisting"
        assert f"16 MiB of results cannot be written to {values} (No space left" in run["waits_for"]
        assert "MiB free)" in run["waits_for"]
        assert cluster.status()["gpus"]["held"] == 0
        assert cluster.placement_groups() == []
        other.ok("%%gpu_train\nsmall = 7")  # the GPU is of use to others
        assert other.value("small") == 7
        assert "16 MiB are needed" in other.run("big = bytes(16 << 20)\n%gpu_train len(big)").traceback
        # nothing of ours is open there, so it can be mended
        until(lambda: _remounted(store, "ro,size=64m"), "the store is read-only")
        until(lambda: "Read-only" in _shown_run(cluster, run["run"])["waits_for"], "the run says so")
        notebook.until(lambda shown: any("Read-only" in text for text in shown.displays()))
        assert "Read-only file system" in other.run("%%gpu_train\n1").traceback
        assert cluster.status()["gpus"]["held"] == 0
        assert _remounted(store, "rw")
        shown = notebook.end(cell)
        assert shown.status == "ok", shown.traceback
        assert notebook.value("[int(table[-1]), len(table)]") == [(1 << 21) - 1, 1 << 21]
        until(lambda: _shown_run(cluster, run["run"])["state"] == "succeeded", "the run has succeeded")
        manifest = values.with_name("manifest.json")
        until(lambda: _state_in(manifest) == "succeeded", "the manifest says so, too")
        assert cluster.cli("attach", run["run"]).count("made") == 1


_LARGE_STATE = """%%gpu_train --gpus 2 --restartable --priority low
import os, time
import jupyter_gpu_release as gpu_release
state, seen = bytearray(16 << 20), []
for n in gpu_release.resumable(range(10**9), every=0):
    seen.append(n)
    if os.path.exists("end"):
        break
    time.sleep(0.02)
del state
"""


def test_nobody_is_taken_while_the_store_is_full(cluster: Cluster, open_notebook: Open, until: Until) -> None:
    notebook, other = open_notebook(cluster), open_notebook(cluster)
    store = cluster.home / "store"
    name = (store / "store.json").read_bytes()
    with tmpfs(store, "8m"):
        (store / "runs").mkdir()
        (store / "store.json").write_bytes(name)
        cell = notebook.begin(_LARGE_STATE)
        notebook.until(lambda shown: "running on" in shown.displays()[-1] if shown.displays() else False)
        run = cluster.last_run()["run"]
        urgent = other.begin("%%gpu_train --gpus 2 --priority high\n1")
        shown = notebook.until(lambda shown: any("cannot be now" in text for text in shown.displays()))
        said = next(text for text in shown.displays() if "cannot be now" in text)
        assert re.search(r"cannot be now: it cannot be saved: the store has \S+ MiB free, and \S+ MiB are needed", said)
        assert _shown_run(cluster, run)["state"] == "running"
        assert cluster.last_run()["state"] == "queued"
        assert cluster.status()["gpus"]["held"] == 2
        (notebook.folder / "end").touch()
        assert notebook.end(cell).status == other.end(urgent).status == "ok"
        assert notebook.value("seen == list(range(len(seen)))")
        until(lambda: cluster.last_run()["state"] == "succeeded", "its results are in the store")
        assert _shown_run(cluster, run)["earlier"] == []


def _state_in(manifest: Path) -> str:
    """Empty: it could not be written yet."""
    return str(json.loads(manifest.read_bytes())["state"]) if manifest.exists() else ""


def _remounted(store: Path, options: str) -> bool:
    command = ["mount", "-o", f"remount,{options}", str(store)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def test_what_a_stopped_cluster_kept_is_written_by_the_next(
    cluster: Cluster, open_notebook: Open, until: Until, home: HomePaths
) -> None:
    notebook = open_notebook(cluster)
    _cell, away = _persisting(cluster, notebook, until)
    run = cluster.last_run()["run"]
    stop_embedded(home)
    assert cluster.find("") == []
    notebook.close()
    (spilled,) = cluster.home.glob(f"spool/*/{run}/store/runs/{run}/values.graph")
    away.rename(cluster.home / "store")
    again = Cluster(start_embedded(home=home, asked=StartOptions(simulated=2), progress=print))
    until(lambda: _shown_run(again, run)["state"] == "succeeded", "the run has succeeded")
    assert [row["name"] for row in _shown_run(again, run)["results"] if row["name"] == "table"] == ["table"]
    assert (cluster.home / "store" / "runs" / run / "values.graph").exists()
    until(lambda: not spilled.exists(), "the spool is empty")
