from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues
from jupyter_gpu_release.simulation.cluster import ClusterSpec, NodeKind
from jupyter_gpu_release.simulation.configured import Configured, read_queues
from jupyter_gpu_release.simulation.replay import replay
from jupyter_gpu_release.simulation.trace import Job, by_age

FOUR = ClusterSpec((NodeKind(gpus=4),))
TWO_QUEUES = """
schema_version: 1
queues:
  - {name: vision, guaranteed: 3, users: [ann]}
  - {name: speech, guaranteed: 1, max: 1, users: [bob]}
default_queue: {ann: vision, bob: speech}
"""


def test_a_queue_never_has_more_than_its_ceiling() -> None:
    crowd = by_age([Job(0, 0, 10, 1, "bob"), Job(0, 0, 10, 1, "bob"), Job(0, 0, 10, 2, "ann"), Job(0, 1, 10, 1, "ann")])
    replayed = replay(crowd, FOUR, partial(Configured, file=parse_queues(TWO_QUEUES, "queues.yaml")))
    starts = {(job.user, job.submit_s, start_s) for job, start_s in zip(crowd, replayed.starts_s, strict=True)}
    assert starts == {("bob", 0, 0), ("bob", 0, 10), ("ann", 0, 0), ("ann", 1, 1)}


def test_a_user_whom_no_queue_names_is_named_with_the_row() -> None:
    stranger = by_age([Job(0, 0, 10, 1, "eve", row=7)])
    with pytest.raises(OptionError, match="row 7 of the trace: --queue: eve has no default queue"):
        replay(stranger, FOUR, partial(Configured, file=parse_queues(TWO_QUEUES, "queues.yaml")))


def test_types_of_gpus_are_kept_apart() -> None:
    cluster = ClusterSpec((NodeKind(gpus=2, gpu_type="V100"), NodeKind(gpus=2, gpu_type="A100")))
    typed = by_age([Job(0, 0, 10, 2, gpu_type="a100"), Job(0, 1, 5, 1, gpu_type="a100"), Job(0, 2, 5, 2)])
    file = parse_queues("schema_version: 1", "queues.yaml")
    assert replay(typed, cluster, partial(Configured, file=file)).starts_s == [0, 10, 2]


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
    with pytest.raises(OptionError, match=r"--queues .*none\.yaml: No such file"):
        read_queues(tmp_path / "none.yaml")


def test_a_priority_counts_up_to_the_ceiling_of_the_queue() -> None:
    crowd = by_age([Job(0, 0, 10, 4), Job(0, 1, 10, 4, priority="low"), Job(0, 2, 10, 4, priority="900.0")])
    file = parse_queues("schema_version: 1", "queues.yaml")
    assert replay(crowd, FOUR, partial(Configured, file=file)).starts_s == [0, 20, 10]
