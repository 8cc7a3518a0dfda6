"""Documents for programs say all their fields, also when there is nothing in them."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.presentation.run_row import run_row
from jupyter_gpu_release.protocol.rest import RunError, RunRow, Summary
from jupyter_gpu_release.protocol.runs import Attempt, FileInfo, RunView, ValueInfo


@pytest.mark.parametrize("row", [FileInfo("empty"), ValueInfo("nothing", "NoneType")])
def test_a_size_of_zero_is_said(row: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(row))["bytes"] == 0


_PAST = [Attempt(granted_at=12.0, gone_at=40.0)]


@pytest.mark.parametrize(
    ("view", "since_s", "held_s"),
    [
        (RunView("r", "ada", "queued", submitted_at=10.0), 50.0, 0.0),
        (RunView("r", "ada", "running", submitted_at=10.0, granted_at=12.0), 48.0, 48.0),
        (RunView("r", "ada", "queued", submitted_at=10.0, attempts=_PAST), 20.0, 28.0),
        (RunView("r", "ada", "running", submitted_at=10.0, granted_at=55.0, attempts=_PAST), 5.0, 33.0),
        (
            RunView("r", "ada", "succeeded", submitted_at=10.0, granted_at=12.0, gone_at=30.0, finished_at=31.0),
            None,
            18.0,
        ),
    ],
)
def test_a_run_that_was_preempted_waits_since_then_and_holds_its_gpus_since_it_goes_on(
    view: RunView, since_s: float | None, held_s: float
) -> None:
    row = run_row(view, 60.0)
    assert (row.since_s, row.held_s) == (since_s, held_s)


def test_what_came_out_of_a_run_is_in_its_row() -> None:
    came_out = Summary(RunError("E", "why"), [ValueInfo("x", "int")], ["a note"], [FileInfo("f")], {"loss": 0.5})
    assert all(getattr(came_out, name) for name in Summary.__struct_fields__), "a field that is new"
    row = run_row(RunView("r", "ada", "failed"), 60.0, came_out)
    assert {name: getattr(row, name) for name in Summary.__struct_fields__} == msgspec.structs.asdict(came_out)


def test_rows_of_gateways_of_before_are_read() -> None:
    """They told of a run that waits, and of one that is not over, in records of their own."""
    waits = {"run": "r", "user": "ann", "queue": "q", "priority": "normal", "gpus": 2, "position": 1, "reason": "x"}
    active = {"run": "r", "user": "ann", "state": "running", "gpus": 1, "notebook": "", "queued_s": 0.1, "held_s": 2.0}
    assert msgspec.convert(waits, RunRow).state == "queued"
    assert msgspec.convert(active, RunRow).held_s == 2.0


def test_a_row_says_all_its_fields_and_a_view_what_it_was_always_told() -> None:
    """Scripts and kernels of before read them by name."""
    row = msgspec.json.decode(msgspec.json.encode(run_row(RunView("r", "ann", "queued"), 1.0)))
    assert set(row) == set(RunRow.__struct_fields__)
    assert set(msgspec.to_builtins(RunView("r", "ann", "queued"))) == {"run", "user", "state"}
