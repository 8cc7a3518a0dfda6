from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import pytest

from jupyter_gpu_release.scheduling.pool import Pool
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues
from jupyter_gpu_release.scheduling.workload import GPU, Node
from jupyter_gpu_release.simulation.borrowed import Borrowed, Site, cluster_of_pool
from jupyter_gpu_release.simulation.replay import Replayed, replay
from jupyter_gpu_release.simulation.trace import Job, by_age

SITE = Site(queue_s=100, boot_s=10)


def pool(idle_return_s: float = 150, gpus: int = 1, most: int = 2, least: int = 0) -> Pool:
    return Pool(Node("", gpus * GPU), most, least, idle_return_s)


def play(on: Pool, *rows: tuple[float, float, float], then: Iterable[Sequence[float]] = (), **more: object) -> Replayed:
    """Play jobs (submitted, duration, GPUs); ``then``: pause and duration of further ones, each after a job's end."""
    left = iter(then)

    def following(job: Job, now_s: float) -> Job | None:
        row = next(left, None)
        return None if row is None else Job(0, now_s + row[0], row[1], job.gpus)

    jobs = by_age(Job(0, submit_s, duration_s, gpus) for submit_s, duration_s, gpus in rows)
    return replay(jobs, cluster_of_pool(on), partial(Borrowed, pool=on, site=SITE, **more), following=following)


def test_a_node_that_stays_is_found_by_the_next_job() -> None:
    kept = play(pool(150), (0, 60, 1), then=[(120, 60)])
    assert kept.waits_s() == [110, 0]
    assert kept.held_gpu_s == 10 + 60 + 120 + 60 + 150
    assert kept.held_over_used() == pytest.approx(400 / 120)


def test_a_node_that_went_back_is_asked_for_anew() -> None:
    back = play(pool(90), (0, 60, 1), then=[(120, 60)])
    assert back.waits_s() == [110, 110]
    assert back.held_gpu_s == 2 * (10 + 60 + 90)


def test_jobs_share_a_node_and_a_whole_one_is_paid_for() -> None:
    shared = play(pool(150, gpus=2), (0, 60, 1), (0, 60, 1), (120, 60, 0.5))
    assert shared.waits_s() == [110, 110, 50]
    assert shared.held_gpu_s == 2 * (10 + 60 + 60 + 150)


def test_the_fullest_node_that_has_room_is_taken() -> None:
    """So that the other one goes back."""
    packed = play(pool(50, gpus=2), (0, 300, 1), (0, 100, 2), (250, 60, 1))
    assert packed.waits_s() == [110, 110, 0]
    assert packed.held_gpu_s == 2 * (10 + 300 + 50) + 2 * (10 + 100 + 50)


def test_whoever_finds_the_pool_full_waits_for_a_node_of_others() -> None:
    assert play(pool(most=1), (0, 60, 1), (105, 60, 1), (300, 60, 1)).waits_s() == [110, 65, 0]


def test_a_job_larger_than_a_node_gets_all_of_its_nodes_or_none() -> None:
    gang = play(pool(100, gpus=2, most=3), (0, 60, 1), (200, 60, 6))  # the first node would go back at 270
    assert gang.waits_s() == [110, 110]
    assert gang.held_gpu_s == 2 * (310 + 60 + 100 - 100) + 2 * 2 * (10 + 60 + 100)


def test_a_request_is_withdrawn_when_a_node_comes_free_before_it() -> None:
    played = play(pool(30), (0, 60, 1), (150, 60, 1))  # the first ends at 170, long before the second node came
    assert played.waits_s() == [110, 20]
    assert played.held_gpu_s == 10 + 60 + 60 + 30


def test_the_least_nodes_stay() -> None:
    played = play(pool(30, least=1), (0, 60, 1), (1000, 60, 1))
    assert played.waits_s() == [110, 0]
    assert played.held_gpu_s == 1060 + 30 - 100


def test_no_node_is_asked_for_a_job_that_a_rule_stops() -> None:
    file = parse_queues("schema_version: 1\nqueues: [{name: only, max: 1}]\n", "queues.yaml")
    played = play(pool(30), (0, 60, 1), (120, 60, 1), file=file)
    assert played.waits_s() == [110, 50]
    assert played.held_gpu_s == 10 + 60 + 60 + 30
