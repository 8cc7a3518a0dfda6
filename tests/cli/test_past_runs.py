"""``status``, ``runs`` and ``attach`` where no cluster runs: what is on the store, and the word that none runs."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.tracebacks import failure_of
from jupyter_gpu_release.errors import RunCancelledError
from jupyter_gpu_release.presentation.receipt import make_receipt
from jupyter_gpu_release.presentation.run_row import own_view
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.runs import Attempt, ErrorInfo, Outcome, Reason, RunView, ValueInfo
from jupyter_gpu_release.store.event_log import EventWriter
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store

_OK, _CUT = "20260101-000003-00000003", "20260101-000002-00000002"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One without a cluster, with a run that failed and one that was cut off."""
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(tmp_path))
    for name in ("JUPYTER_GPU_URL", "JUPYTER_GPU_STORE"):
        monkeypatch.delenv(name, raising=False)
    store = tmp_path / "store"
    make_store(store)
    outcome = Outcome("error", ErrorInfo("ValueError", "no"), results=[ValueInfo("loss", "float", 8)])
    times = {"submitted_at": 1.8e9, "granted_at": 1.8e9, "gone_at": 1.8e9 + 60, "finished_at": 1.8e9 + 60}
    _put(store, RunView(_OK, "ann", "failed", name="fit", outcome=outcome, **times), "epoch 1\nepoch 2\n")
    _put(store, RunView(_CUT, "ann", "running", submitted_at=1.8e9, granted_at=1.8e9), "so far\n")
    return store


def _put(store: Path, view: RunView, printed: str) -> None:
    paths = create_run_folder(store, view.run)
    manifest = {"schema_version": 1, "code": "fit(x)", **msgspec.to_builtins(view)}
    paths.manifest.write_bytes(msgspec.json.encode(manifest))
    writer = EventWriter(paths.events)
    writer.write([Event(1, 1.8e9, "stream", {"name": "stdout", "text": printed})])
    writer.close()


def test_runs_are_listed_and_shown_from_the_store(home: Path, capsys: Capture) -> None:
    assert main(["runs"]) == 0
    listed = capsys.readouterr()
    assert listed.err == f"No cluster is running here: this is what the store {home} has.\n"
    assert listed.out.index(_OK) < listed.out.index(_CUT), "newest first"
    assert main(["runs", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [(row["run"], row["state"], row["reason"]) for row in rows] == [
        (_OK, "failed", ""),
        (_CUT, "lost", "its cluster ended before it"),
    ]
    assert main(["runs", "show", "last"]) == 0
    shown = capsys.readouterr().out
    for words in (_OK, "fit(x)", "loss (float, 8 B)", "ValueError: no"):
        assert words in shown


def test_a_run_that_was_cut_off_holds_nothing_while_no_cluster_runs(
    home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time()
    run = "20260101-000009-00000009"
    _put(home, RunView(run, "ann", "running", submitted_at=began, granted_at=began), "so far\n")
    monkeypatch.setattr(time, "time", lambda: began + 3 * 86400)
    assert main(["runs", "--json"]) == 0
    row = next(row for row in json.loads(capsys.readouterr().out)["runs"] if row["run"] == run)
    assert row["held_s"] < 86400
    assert row["finished_at"] < began + 86400


def test_a_run_that_was_preempted_says_so_and_ones_own_act_is_called_ones_own(home: Path, capsys: Capture) -> None:
    aside = Attempt(1.8e9, 1.8e9 + 10, user="bob", place="epoch 37", was_saved=True)
    ended = RunView(
        "20260101-000004-00000004",
        "ann",
        "cancelled",
        reason="cancelled by ann",
        cause=Reason("cancelled", {"user": "ann"}),
        submitted_at=1.8e9,
        granted_at=1.8e9 + 12,
        gone_at=1.8e9 + 60,
        finished_at=1.8e9 + 60,
        attempts=[aside],
        outcome=Outcome("interrupted", ErrorInfo("KeyboardInterrupt", "")),
    )
    _put(home, ended, "")
    assert main(["runs", "show", "last"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^state +cancelled by you *$", shown, re.MULTILINE)
    assert "preempted for bob at epoch 37, waited 2 s" in shown
    assert main(["attach", "last"]) == 1
    assert f"[{ended.run} cancelled by you, held" in capsys.readouterr().err
    told = own_view(ended)
    assert make_receipt(told).text.startswith("■ cancelled by you ·")
    failure = failure_of(told, 0, "")
    assert isinstance(failure, RunCancelledError)
    assert failure.message == "cancelled by you"


def test_output_plays_back_and_the_exit_status_is_the_runs(capsys: Capture) -> None:
    assert main(["attach", _OK]) == 1
    shown = capsys.readouterr()
    assert shown.out == "epoch 1\nepoch 2\n"
    assert shown.err.endswith(f"[{_OK} failed, held 1 min]\n")
    assert main(["attach", _CUT]) == 1
    cut = capsys.readouterr()
    assert (cut.out, "lost: its cluster ended before it" in cut.err) == ("so far\n", True)
    assert main(["attach", "20260101-000001-00000001"]) == 1
    assert "is not on the store" in capsys.readouterr().err


def test_the_status_says_that_none_runs_and_shows_the_latest_runs(capsys: Capture) -> None:
    assert main(["status"]) == 1
    told = capsys.readouterr()
    assert "no cluster is running on this machine" in told.err
    assert "jupyter gpu start" in told.err
    assert _OK in told.out


def test_another_gateway_that_does_not_answer_is_not_a_store(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Its runs are somewhere else, and it may come back."""
    monkeypatch.setenv("JUPYTER_GPU_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", "x" * 43)
    for words in (["runs"], ["attach", _OK], ["runs", "show", _OK]):
        assert main(words) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert "127.0.0.1:9" in told.err
