from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.local_cluster.preflight import read_queues
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues
from jupyter_gpu_release.simulation.cluster import ClusterSpec, NodeKind
from jupyter_gpu_release.simulation.configured import Configured
from jupyter_gpu_release.simulation.metrics import figures
from jupyter_gpu_release.simulation.replay import replay
from jupyter_gpu_release.simulation.trace import Job, by_age, read_trace

FOUR = ClusterSpec((NodeKind(gpus=4),))
TWO_QUEUES = """
schema_version: 1
queues:
  - {name: vision, guaranteed: 3, users: [ann]}
  - {name: speech, guaranteed: 1, max: 1, users: [bob]}
default_queue: {ann: vision, bob: speech}
"""


def test_a_user_whom_no_queue_names_is_named_with_the_row() -> None:
    stranger = by_age([Job(0, 0, 10, 1, "eve", row=7)])
    with pytest.raises(OptionError, match="row 7 of the trace: --queue: eve has no default queue"):
        replay(stranger, FOUR, partial(Configured, file=parse_queues(TWO_QUEUES, "queues.yaml")))


TRACES = Path(__file__).parents[2] / "examples" / "traces"
SHARED = """
schema_version: 1
queues:
  - {name: vision, users: [ann]}
  - {name: speech, users: [bob]}
"""


def test_a_restartable_job_steps_aside_for_a_queue_below_its_share_and_goes_on_from_its_last_save() -> None:
    crowd = by_age([*(Job(0, 0, 1000, 1, "ann") for _ in range(4)), *(Job(0, 100, 50, 1, "bob") for _ in range(2))])
    file = parse_queues(SHARED, "queues.yaml")
    kept = replay(crowd, FOUR, partial(Configured, file=file))
    assert (kept.waits_s()[4:], kept.work_lost()) == ([900, 900], 0)
    moved = replay(crowd, FOUR, partial(Configured, file=file, restartable=1.0))
    again = [moved.attempts[2], moved.attempts[3]]
    assert again == [[(0, 100), (150, 1120)]] * 2, "60 of 100 s were saved, and going on takes 30 s"
    assert moved.waits_s() == [0, 0, 120, 120, 0, 0]
    assert moved.work_lost() == pytest.approx(2 * 70 / 4100)
    assert figures(moved)["preempted"] == 2


def test_the_example_has_a_queue_for_each_virtual_cluster_of_its_trace() -> None:
    file = read_queues(TRACES / "philly_queues.yaml")
    users = {job.user for job in read_trace(TRACES / "philly_2017_oct_2wk.csv").jobs}
    assert {file.queue_for(user, None) for user in users} == set(file.tree.leaves())
    assert len(users) == len(file.tree.leaves()) == 11


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 300),
            st.integers(0, 400),
            st.integers(1, 4),
            st.sampled_from(["ann", "bob"]),
            st.sampled_from(["low", "high"]),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([0.5, 1.0]),
)
def test_whoever_steps_aside_does_all_of_its_work_on_gpus_of_its_own(
    rows: list[tuple[int, int, int, str, str]], part: float
) -> None:
    crowd = by_age(Job(0, submit, lasts, gpus, user, "", priority) for submit, lasts, gpus, user, priority in rows)
    make = partial(Configured, file=parse_queues(SHARED, "queues.yaml"), restartable=part)
    replayed = replay(crowd, FOUR, make)
    spans = [(job, span) for job, of in zip(crowd, replayed.spans(), strict=True) for span in of]
    for _, (at, _) in spans:
        assert sum(job.gpus for job, (begin_s, end_s) in spans if begin_s <= at < end_s) <= 4
    for job, of in zip(crowd, replayed.spans(), strict=True):
        assert sum(end_s - begin_s for begin_s, end_s in of) >= job.duration_s - 1e-6
    assert replay(crowd, FOUR, make) == replayed


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 4), st.sampled_from(["ann", "bob"])),
        min_size=1,
        max_size=25,
    )
)
def test_nobody_is_forgotten_and_nothing_given_twice(rows: list[tuple[int, int, int, str]]) -> None:
    crowd = by_age(Job(0, submit, duration, gpus, user) for submit, duration, gpus, user in rows)
    file = parse_queues("schema_version: 1", "queues.yaml")
    replayed = replay(crowd, FOUR, partial(Configured, file=file))
    assert all(wait >= 0 for wait in replayed.waits_s())
    for at in replayed.starts_s:
        running = zip(crowd, replayed.starts_s, strict=True)
        assert sum(job.gpus for job, start_s in running if start_s <= at < start_s + job.duration_s) <= 4


def test_a_queues_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--queues: cannot read .*none\.yaml: No such file"):
        read_queues(tmp_path / "none.yaml")


def test_a_priority_counts_up_to_the_ceiling_of_the_queue() -> None:
    crowd = by_age([Job(0, 0, 10, 4), Job(0, 1, 10, 4, priority="low"), Job(0, 2, 10, 4, priority="900.0")])
    file = parse_queues("schema_version: 1", "queues.yaml")
    assert replay(crowd, FOUR, partial(Configured, file=file)).starts_s == [0, 20, 10]
