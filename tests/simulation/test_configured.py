from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.scheduling.learned_run_times import LearnedRunTimes
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues
from jupyter_gpu_release.scheduling.run_times import RunTimeHistory, median_error
from jupyter_gpu_release.scheduling.workload import GPU, Rank, Run
from jupyter_gpu_release.simulation.baselines import Fifo
from jupyter_gpu_release.simulation.cluster import ClusterSpec, NodeKind
from jupyter_gpu_release.simulation.configured import Configured
from jupyter_gpu_release.simulation.replay import replay
from jupyter_gpu_release.simulation.trace import Job, by_age, read_trace

TRACES = Path(__file__).parents[2] / "examples" / "traces"
FOUR = ClusterSpec((NodeKind(gpus=4),))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 4), st.sampled_from("ab")),
        min_size=1,
        max_size=30,
    )
)
def test_everybody_starts_and_nobody_gets_what_another_has(rows: list[tuple[int, int, int, str]]) -> None:
    crowd = by_age(Job(0, submit, duration, gpus, user) for submit, duration, gpus, user in rows)
    replayed = replay(crowd, FOUR, Configured)
    assert all(wait >= 0 for wait in replayed.waits_s())
    for at in replayed.starts_s:
        running = zip(crowd, replayed.starts_s, strict=True)
        assert sum(job.gpus for job, start_s in running if start_s <= at < start_s + job.duration_s) <= 4
    assert replay(crowd, FOUR, Configured) == replayed


def _halves(sharing: str, users: str = "aaaa") -> list[float]:
    file = parse_queues(f"schema_version: 1\ngpu_sharing: {sharing}", "queues.yaml")
    crowd = [Job(at, 0, 100, 0.5, user, row=at + 2) for at, user in enumerate(users)]
    cluster = ClusterSpec((NodeKind(gpus=1, gpu_type="H100"), NodeKind(gpus=1, gpu_type="T4")))
    return replay(crowd, cluster, partial(Configured, file=file)).waits_s()


def test_parts_are_shared_as_the_queues_file_says() -> None:
    assert _halves("{}") == [0, 0, 0, 0]
    assert _halves("{types: [h100]}") == [0, 0, 100, 100]


@pytest.mark.parametrize(
    ("sharing", "words"),
    [
        ("{mode: none}", "row 2 of the trace: 0.5 GPUs: GPUs of this cluster are not shared"),
        ("{types: [a100]}", "row 2 of the trace: 0.5 GPUs: GPUs of type any are not shared"),
        ("{users: [ann]}", "row 2 of the trace: 0.5 GPUs: you may not share GPUs"),
    ],
)
def test_a_part_that_the_queues_file_forbids_is_refused(sharing: str, words: str) -> None:
    """Else it would wait for ever."""
    with pytest.raises(OptionError, match=words):
        _halves(sharing)


def test_it_is_far_quicker_than_first_in_first_out_without_starving_gangs() -> None:
    trace = read_trace(TRACES / "msitp_2021_cluster04.csv")
    part, cluster = trace.jobs[:5000], ClusterSpec((NodeKind(600),))
    ours = replay(part, cluster, Configured).waits_s()
    fifo = replay(part, cluster, Fifo).waits_s()
    assert sum(ours) < 0.5 * sum(fifo)
    assert max(ours) < 2 * max(fifo)


def test_durations_are_learned_from_runs_of_the_same_campaign_first() -> None:
    estimates = RunTimeHistory()
    long_ago = estimates.submitted("ann", 1, 0)
    for _ in range(20):
        estimates.started(long_ago, 0)
        estimates.ended(long_ago, 0, 100)
    campaign = estimates.submitted("ann", 1, 10_000)
    assert campaign is not long_ago
    assert estimates.expected_s(campaign, 10_000) == pytest.approx(100)
    assert estimates.submitted("ann", 1, 10_200) is campaign
    for _ in range(8):
        estimates.started(campaign, 10_000)
        estimates.ended(campaign, 10_000, 900)
    assert 600 < estimates.expected_s(campaign, 11_000) < 900
    assert estimates.expected_s(estimates.submitted("ann", 1, 11_000, "cell 7"), 11_000) < 600


def test_a_run_that_goes_on_and_on_makes_its_like_expected_to() -> None:
    estimates = RunTimeHistory()
    campaign = estimates.submitted("ann", 1, 0)
    first = estimates.expected_s(campaign, 0)
    estimates.started(campaign, 0)
    assert estimates.expected_s(campaign, 100_000) > 10 * first


def test_an_estimate_says_how_far_it_may_be_off_and_never_exceeds_the_timeout() -> None:
    estimates = RunTimeHistory()
    campaign = estimates.submitted("ann", 1, 0)
    for duration_s in range(10, 210, 10):
        estimates.started(campaign, 0)
        estimates.ended(campaign, 0, duration_s)
    found = estimates.estimate(campaign, 1000)
    assert (found.low_s, found.high_s, found.runs) == (30, 180, 20)
    assert found.low_s < found.expected_s < found.high_s
    assert estimates.estimate(campaign, 1000, limit_s=50).expected_s == 50
    assert estimates.estimate(campaign, 1000, limit_s=50).high_s == 50
    assert median_error([(10, 20), (30, 10), (7, 7)]) == 2


def waiting(run: str, gpus: int, submitted_at: float) -> Run:
    return Run(run, "default", (Rank(),), gpus * GPU, 1, submitted_at=submitted_at)


def test_a_gang_that_was_overtaken_for_too_long_goes_before_everybody() -> None:
    run_times, hour_s = LearnedRunTimes(gpus=100), 3600.0
    run_times.submitted("gang", "ann", 50, "", 0)
    for hour in range(8):
        assert run_times.overdue(hour * hour_s) == (frozenset({"gang"}) if hour else frozenset())
        run_times.submitted(f"small{hour}", "bob", 100, "", hour * hour_s)
        run_times.started(f"small{hour}", hour * hour_s)
        run_times.ended(f"small{hour}", (hour + 1) * hour_s)
    assert run_times.overtaken_s("gang", 8 * hour_s) == pytest.approx(8 * hour_s)
    run_times.submitted("small", "bob", 1, "", 8 * hour_s)
    gang, small = waiting("gang", 50, 0), waiting("small", 1, 8 * hour_s)
    assert run_times.rank(gang, 8 * hour_s) == (0, 0)
    assert run_times.rank(gang, 8 * hour_s) < run_times.rank(small, 8 * hour_s)


def test_what_is_nearly_a_gang_may_be_overtaken_little_more_than_a_gang() -> None:
    """In a pool of 1,000 GPUs 18 are a gang; all are overtaken by the same for 9 of 60 hours."""
    run_times, hour_s = LearnedRunTimes(gpus=1000), 3600.0
    for gpus in (18, 17, 13, 9, 1):
        run_times.submitted(f"{gpus}", "ann", gpus, "", 0)
    run_times.submitted("later", "bob", 1000, "", 0)
    run_times.started("later", 51 * hour_s)
    run_times.ended("later", 60 * hour_s)
    assert run_times.overdue(60 * hour_s) == {"18", "17"}


def test_small_work_goes_first_until_large_work_has_waited_longer() -> None:
    run_times = LearnedRunTimes(gpus=100)
    for number in range(40):
        for user, duration_s in (("ann", 60.0), ("bob", 60_000.0)):
            run = f"{user}{number}"
            run_times.submitted(run, user, 1, "", 0)
            run_times.started(run, 0)
            run_times.ended(run, duration_s)
    run_times.submitted("long", "bob", 1, "", 100_000)
    run_times.submitted("short", "ann", 1, "", 200_000)
    long, short = waiting("long", 1, 100_000), waiting("short", 1, 200_000)
    assert run_times.rank(short, 200_000) < run_times.rank(long, 200_000)
    run_times.submitted("late", "ann", 1, "", 1e9)
    assert run_times.rank(long, 1e9) < run_times.rank(waiting("late", 1, 1e9), 1e9)


def test_run_times_know_how_far_they_were_off() -> None:
    run_times = LearnedRunTimes(gpus=4)
    for number in range(3):
        run_times.submitted(f"run{number}", "ann", 1, "", 0)
        run_times.started(f"run{number}", 0)
    for number in range(3):
        run_times.ended(f"run{number}", 7200)
    assert run_times.median_factor() == pytest.approx(2), "an hour is expected of the very first run"
