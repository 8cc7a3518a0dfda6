"""The trials of a sweep in one row of a list."""

from __future__ import annotations

from typing import Any

from jupyter_gpu_release.presentation.sweep_rows import fold_sweeps
from jupyter_gpu_release.protocol.rest import RunRow
from jupyter_gpu_release.protocol.runs import Reason


def _row(run: str, state: str, *, sweep: str = "", **facts: Any) -> RunRow:
    return RunRow(run, "ann", state, name=f"widths {run}" if sweep else run, sweep=sweep, **facts)


def test_trials_are_one_row_where_their_newest_stood() -> None:
    rows = [
        _row("c", "succeeded"),
        _row("4", "queued", sweep="s", submitted_at=9.0),
        _row("3", "running", sweep="s", submitted_at=8.0, held_s=2.0, gpus=2),
        _row("b", "running"),
        _row("2", "cancelled", sweep="s", submitted_at=7.0, held_s=1.0, gpus=2, cause=Reason("pruned")),
        _row("1", "succeeded", sweep="s", submitted_at=6.0, held_s=3.0, gpus=2),
    ]
    folded = fold_sweeps(rows)
    assert [row.run for row in folded] == ["c", "s", "b"]
    sweep = folded[1]
    assert sweep.name == sweep.title == "widths: 1 queued, 1 running, 1 pruned, 1 succeeded"
    assert (sweep.state, sweep.gpus, sweep.submitted_at, sweep.held_s) == ("running", 2, 6.0, 6.0)


def test_a_sweep_that_is_over_went_well_if_a_trial_did() -> None:
    over = [_row("2", "failed", sweep="s"), _row("1", "succeeded", sweep="s", gpus=2)]
    assert [(row.state, row.gpus) for row in fold_sweeps(over)] == [("succeeded", 2)]
    assert [row.state for row in fold_sweeps(over[:1])] == ["failed"]


def test_a_sweep_that_was_detached_goes_on_as_long_as_its_driver() -> None:
    """The driver is no trial."""
    driver = _row("s", "running", sweep="s", detached=True, gpus=0)
    assert fold_sweeps([driver]) == [driver]
    (row,) = fold_sweeps([_row("1", "succeeded", sweep="s", gpus=2), driver])
    assert (row.run, row.name, row.state, row.gpus, row.detached) == ("s", "widths: 1 succeeded", "running", 2, True)
    (over,) = fold_sweeps([_row("1", "failed", sweep="s"), _row("s", "failed", sweep="s")])
    assert over.state == "failed"
