from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.presentation.gpu_use import judge
from jupyter_gpu_release.presentation.receipt import make_receipt
from jupyter_gpu_release.protocol.runs import GpuUse, Outcome, RunView

GIB = 1 << 30


def remarks(*, ran_s: float = 60.0, reason: str = "", **use: float | None):
    view = RunView(run="r", user="u", state="succeeded", gpus=1)
    outcome = Outcome(
        status="ok", started_s=100.0, ended_s=100.0 + ran_s, gpu_use=GpuUse(**use), untouched_reason=reason
    )
    return [(verdict.text, verdict.loud) for verdict in judge(view, outcome)]


def test_never_touched_is_loud_and_gives_the_reason():
    assert remarks(peak_utilization=0.0, reason="`device` is cpu") == [
        ("the GPU was never touched (peak 0 %: `device` is cpu)", True)
    ]


def test_reason_of_the_rank_is_enough_for_a_short_cell():
    assert remarks(ran_s=0.1, reason="torch was not told") == [
        ("the GPU was never touched (no work on it: torch was not told)", True)
    ]


def test_short_cell_is_not_blamed_by_the_sampler_alone():
    assert remarks(ran_s=1.0, peak_utilization=0.0) == []
    assert remarks(ran_s=3.0, peak_utilization=0.0) == [("the GPU was never touched (peak 0 %)", True)]


def test_memory_used_is_a_touch():
    assert remarks(ran_s=5.0, peak_utilization=0.0, peak_memory_bytes=GIB, reason="x") == []


def test_starved_is_quiet():
    assert remarks(peak_utilization=0.6, mean_utilization=0.12) == [("GPU 12 % busy, waiting for data", False)]


def test_oversized_is_quiet():
    found = remarks(
        peak_utilization=1.0, mean_utilization=0.9, peak_memory_bytes=int(0.8 * GIB), total_memory_bytes=80 * GIB
    )
    assert found == [("0.8 of 80 GiB used: a smaller GPU would do", False)]


def test_at_the_limits_nothing_is_said():
    assert remarks(peak_utilization=0.6, mean_utilization=0.3) == []
    assert remarks(peak_utilization=1.0, mean_utilization=0.9, peak_memory_bytes=GIB, total_memory_bytes=8 * GIB) == []


def test_of_a_shared_gpu_its_whole_use_is_said_however_short_the_cell():
    view = RunView(run="r", user="u", state="succeeded", gpus=1, shared_with=1)
    use = GpuUse(peak_utilization=0.6, mean_utilization=0.12)
    (remark,) = judge(view, Outcome(status="ok", started_s=100.0, ended_s=101.0, gpu_use=use))
    assert "12 % busy in all" in remark.text


@pytest.mark.parametrize("ran_s", [0.5, 9.0])
def test_short_cells_are_left_alone(ran_s: float):
    assert remarks(ran_s=ran_s, peak_utilization=0.6, mean_utilization=0.12) == []


def test_memory_that_stayed_is_loud():
    assert remarks(peak_utilization=1.0, mean_utilization=0.9, left_bytes=GIB) == [
        ("1 GiB of GPU memory did NOT come back after the cell's processes ended", True)
    ]


def test_well_used_gets_no_remark():
    found = remarks(
        peak_utilization=1.0,
        mean_utilization=0.8,
        peak_memory_bytes=40 * GIB,
        total_memory_bytes=80 * GIB,
        left_bytes=0,
    )
    assert found == []


def test_no_verdict_on_simulated_gpus_or_none():
    outcome = Outcome(status="ok", gpu_use=GpuUse(peak_utilization=0.0), untouched_reason="x")
    view = RunView(run="r", user="u", state="succeeded", gpus=1, outcome=outcome)
    assert make_receipt(view).warnings == ("the GPU was never touched (peak 0 %: x)",)
    for facts in ({"simulated": True}, {"gpus": 0}):
        assert make_receipt(msgspec.structs.replace(view, **facts)).warnings == ()
