"""Lines of ours that the pages for users show are those that we write."""

from __future__ import annotations

import re

import pytest
from doc_blocks import block
from msgspec import convert

from jupyter_gpu_release.kernel.magics.tables import queue_tables
from jupyter_gpu_release.presentation.receipt import make_receipt
from jupyter_gpu_release.presentation.wording import describe_environment, describe_wait, format_clock
from jupyter_gpu_release.protocol.environments import LACKS, Origin, Plan, PlannedPackage
from jupyter_gpu_release.protocol.rest import StatusDocument
from jupyter_gpu_release.protocol.runs import GpuUse, Outcome, PersistWait, RunView, ValueInfo


def test_a_receipt() -> None:
    outcome = Outcome(
        "ok",
        results=[ValueInfo("model", "DigitNet", 1_258_291), ValueInfo("history", "list", 100)],
        gpu_use=GpuUse(peak_utilization=1.0, mean_utilization=0.9, left_bytes=0),
        notes=["`loss` came back detached from its computation graph"],
    )
    view = RunView(
        "20261121-034512-9f3a12bc",
        "ann",
        "succeeded",
        outcome=outcome,
        gpu_name="NVIDIA H100",
        submitted_at=100.0,
        granted_at=100.004,
        gone_at=141.204,
        release_ms=23.0,
    )
    assert f"{make_receipt(view).text}\n" == block("use/receipt.md", "# Read the receipt").text


def test_packages_that_went_along() -> None:
    own = PlannedPackage("vision-tools", "1", LACKS, True, Origin.EDITABLE, files=14)
    said = describe_environment(Plan("3.12", "linux", [PlannedPackage("einops", "0.8.1", LACKS), own]), 1.9)
    assert f"· {said}\n" == block("use/packages.md", "# Have the packages that a cell needs").text


def test_results_that_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_gpu_release.presentation.wording.format_clock", lambda _at_s: "14:03:12 CET")
    assert re.fullmatch(r"(\S+ )?\d\d:\d\d:\d\d \S+", format_clock(0.0))
    reason = "No space left on device"
    said = describe_wait(PersistWait("…", 1 << 30, reason, 8 << 20, next_try_at=1.0))
    assert f"{said}\n" == block("use/stop.md", "## Results are written after the GPU is free").text


def test_who_waits_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = {"user": "ann", "state": "queued", "gpus": 4, "position": 1, "priority": "normal"}
    ids = {"protein": "20261123-084712-9736e20a", "climate": "20261123-084712-56e34fde"}
    waiting = [
        {**row, "run": run, "queue": queue, "reason": f"next in {queue}: needs 4 GPUs, 0 of 8 are free"}
        for queue, run in ids.items()
    ]
    held = [{"run": "r", "user": "ann", "state": "running", "gpus": 8, "held_s": 4.3}]
    status = {"schema_version": 1, "simulated": False, "user": "ann", "gateway": {"url": "", "version": ""}}
    status |= {"gpus": {"total": 8, "held": 8, "free": 0, "external": 0}, "queue": waiting, "runs": held, "nodes": []}
    (table,) = queue_tables(convert(status, StatusDocument), {})
    shown = block("use/queues.md", "# Know why a cell waits, and choose a queue").text
    assert f"{table!r}\n" == shown
