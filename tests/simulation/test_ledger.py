from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.protocol.rest import RunRow
from jupyter_gpu_release.simulation.ledger import held_over_used, measured, trace_of


def row(submitted_at: float, granted_at: float | None, gone_at: float | None, **others: Any) -> RunRow:
    facts: dict[str, Any] = {
        "run": "r",
        "user": "ann",
        "state": "succeeded",
        "gpus": 2,
        "ranks": 1,
        "name": "",
        "notebook": "a.ipynb",
        "cell": "c1",
        "queue": "research",
        "priority": "normal",
        "simulated": True,
        "running_at": None,
        "finished_at": gone_at,
        "queued_s": 0.0,
        "held_s": 0.0,
        "release_ms": None,
        "position": None,
        "reason": "",
        "hosts": [],
        "gpu_ids": [],
        "gpu_name": "",
        "results": [],
        "files": [],
        "error": None,
    }
    return RunRow(submitted_at=submitted_at, granted_at=granted_at, gone_at=gone_at, **{**facts, **others})


def test_runs_that_held_gpus_become_jobs_and_the_others_are_named() -> None:
    rows = [
        row(70, 80, None, state="cancelled"),
        row(50, 60, None, state="running"),
        row(40, None, None),
        row(30, 31, 32, gpus=0),
        row(20, 25, 45),
        row(0, 0, 10),
    ]
    trace = trace_of(rows)
    assert [(job.submit_s, job.duration_s, job.gpus, job.queue, job.task) for job in trace.jobs] == [
        (0, 10, 2, "research", "a.ipynb#c1"),
        (20, 20, 2, "research", "a.ipynb#c1"),
    ]
    assert trace.explain_left_out() == (
        "4 rows of ledger left out: its end is not known (row 1); still holds its GPUs (row 2); "
        "never got its GPUs (row 3); takes no GPU (row 4)"
    )
    assert measured(trace, rows, 4).waits_s() == [0, 5]


def test_held_counts_from_the_grant_and_used_from_the_first_statement_to_the_last() -> None:
    rows = [row(0, 0, 10, running_at=1.0, release_ms=1000.0), row(20, 20, 24, running_at=22.0), row(30, 30, 99)]
    assert held_over_used(trace_of(rows), rows) == pytest.approx((10 + 4) / (8 + 2))


def test_an_empty_ledger_is_said() -> None:
    with pytest.raises(OptionError, match="no run has held GPUs"):
        trace_of([])
