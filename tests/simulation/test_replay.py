from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.fairness import against
from jupyter_gpu_release.simulation.baselines import BASELINES
from jupyter_gpu_release.simulation.cluster import ClusterSpec, NodeKind
from jupyter_gpu_release.simulation.metrics import figures, jain, max_overtaken_s
from jupyter_gpu_release.simulation.replay import Replayed, replay
from jupyter_gpu_release.simulation.report import Column, compare, print_report
from jupyter_gpu_release.simulation.trace import Job, Trace, by_age, read_trace

TRACES = Path(__file__).parents[2] / "examples" / "traces"
FOUR = ClusterSpec((NodeKind(gpus=4),))


def jobs(*rows: tuple[float, float, int]) -> tuple[Job, ...]:
    return by_age(Job(0, submit_s, duration_s, gpus) for submit_s, duration_s, gpus in rows)


#: three GPUs busy until 10; a gang of 4 waits; behind it a short job, a long one, and a shorter one
CROWD = jobs((0, 10, 3), (1, 10, 4), (2, 9, 1), (3, 8, 1), (4, 2, 1))


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("fifo", [0, 10, 20, 20, 20]),
        ("first_fit", [0, 18, 2, 10, 10]),
        ("easy", [0, 10, 20, 20, 4]),
        ("shortest_first", [0, 18, 2, 10, 10]),
    ],
)
def test_each_baseline_starts_jobs_in_its_own_way(policy: str, starts: list[float]) -> None:
    assert replay(CROWD, FOUR, BASELINES[policy]).starts_s == starts


def test_a_backfilled_job_never_delays_the_head() -> None:
    crowd = jobs((0, 10, 3), (1, 5, 4), (2, 8, 1), (3, 8.5, 1))
    assert replay(crowd, FOUR, BASELINES["easy"]).starts_s == [0, 10, 2, 15]


def test_types_of_gpus_are_counted_apart() -> None:
    cluster = ClusterSpec((NodeKind(gpus=2, gpu_type="V100"), NodeKind(gpus=2, gpu_type="A100")))
    typed = by_age([Job(0, 0, 10, 2, gpu_type="a100"), Job(0, 1, 5, 1, gpu_type="a100"), Job(0, 2, 5, 2)])
    assert replay(typed, cluster, BASELINES["first_fit"]).starts_s == [0, 10, 2]
    assert replay(typed, cluster, BASELINES["fifo"]).starts_s == [0, 10, 10]
    assert replay(typed, cluster, BASELINES["easy"]).starts_s == [0, 10, 2]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=30),
    st.sampled_from(sorted(BASELINES)),
)
def test_no_baseline_gives_out_more_than_there_is_or_forgets_a_job(rows: list[tuple[int, int, int]], name: str) -> None:
    crowd = jobs(*rows)
    replayed = replay(crowd, FOUR, BASELINES[name])
    assert all(wait >= 0 for wait in replayed.waits_s())
    for at in replayed.starts_s:
        running = zip(crowd, replayed.starts_s, strict=True)
        assert sum(job.gpus for job, start_s in running if start_s <= at < start_s + job.duration_s) <= 4
    assert replay(crowd, FOUR, BASELINES[name]) == replayed


# published with the traces, for the whole of each: FIFO, first fit, EASY, shortest first
@pytest.mark.parametrize(
    ("policy", "mean_wait_s"), [("fifo", 328), ("first_fit", 208), ("easy", 281), ("shortest_first", 177)]
)
def test_published_figures_come_out(policy: str, mean_wait_s: float) -> None:
    trace = read_trace(TRACES / "msitp_2021_cluster04.csv")
    found = figures(replay(trace.jobs, ClusterSpec((NodeKind(900),)), BASELINES[policy]))
    assert round(float(str(found["mean_wait_s"]))) == mean_wait_s
    assert found["utilization"] == pytest.approx(0.55, abs=0.005)


def test_figures_of_a_replay() -> None:
    trace = by_age([Job(0, 0, 100, 1, "ann"), Job(0, 0, 100, 1, "bob"), Job(0, 100, 100, 2, "bob")])
    found = figures(Replayed(trace, [0, 100, 200], gpus=2))
    assert found["mean_wait_s"] == pytest.approx(66.667)
    assert found["longest_wait_s"] == 100
    assert found["p99_wait_by_size_s"] == {"1": 99, "2": 100}
    assert found["bounded_slowdown"] == pytest.approx(5 / 3, abs=1e-4)
    assert found["makespan_s"] == 300
    assert found["utilization"] == 0.5
    assert found["max_min_share"] == 0.5
    assert found["jain"] == pytest.approx(0.9)


def test_jains_index_is_one_for_equals_and_one_in_n_for_a_monopoly() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)


def test_overtaking_counts_from_the_first_younger_job_that_started() -> None:
    crowd = jobs((0, 1, 4), (1, 1, 1), (1, 1, 1))
    assert max_overtaken_s(Replayed(crowd, [9, 2, 5], gpus=4)) == 7
    assert max_overtaken_s(Replayed(crowd, [0, 9, 2], gpus=4)) == 0, "who came in the same instant is no younger"


def test_fairness_compares_the_second_half_of_the_jobs() -> None:
    crowd = jobs((0, 1, 1), (1, 1, 1), *[(2 + at, 1, 1) for at in range(50)], *[(60 + at, 1, 8) for at in range(52)])
    fifo = Replayed(crowd, [job.submit_s + 10 for job in crowd], gpus=8)
    ours = Replayed(crowd, [job.submit_s + (5 if at % 2 else 12) for at, job in enumerate(crowd)], gpus=8)
    fairness = against(ours, fifo, gang=8)
    assert fairness.mean == fairness.gangs == pytest.approx(0.85)
    assert fairness.longest == pytest.approx(1.2)
    assert fairness.p99_by_size == {8: pytest.approx(1.2)}
    assert fairness.worst_p99 == pytest.approx(1.2)


def test_the_tables_fit_eighty_columns() -> None:
    """Four policies whose waits are days: the figures of a cell stand below one another then."""
    crowd = jobs((0, 200_000, 4), (1, 200_000, 4), (2, 100_001, 4))
    shown = io.StringIO()
    columns = {name: Column(FOUR, BASELINES[name]) for name in ("fifo", "first_fit", "easy", "shortest_first")}
    print_report(Console(file=shown, width=80), compare(Trace("crowd", crowd, ()), columns))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "wait by GPUs: mean · 99 % at most" in lines
    assert "…" not in shown.getvalue()
    assert sum("2 d 7 h" in line for line in lines) >= 4, "no figure is torn"
