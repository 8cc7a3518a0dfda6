from __future__ import annotations

import pytest

from benchmarks.clusters.borrowed_nodes import Site, borrow, hold_per_session, mean_wait_s
from benchmarks.notebook_sessions import Cell, Session
from jupyter_gpu_release.scheduling.pool import Pool
from jupyter_gpu_release.scheduling.workload import GPU, Node

TWO_CELLS = Session(0, 1, (Cell(60, 120), Cell(60, 0)))
SITE = Site(queue_s=100, boot_s=10)


def pool(idle_return_s: float, gpus: int = 1, most: int = 2) -> Pool:
    return Pool(Node("", gpus * GPU), most, 0, idle_return_s)


def test_a_node_that_stays_is_found_by_the_next_cell() -> None:
    kept = borrow([TWO_CELLS], pool(150), SITE)
    assert kept.waits_s == [110, 0]
    assert kept.held_gpu_s == 10 + 60 + 120 + 60 + 150


def test_a_node_that_went_back_is_asked_for_anew() -> None:
    back = borrow([TWO_CELLS], pool(90), SITE)
    assert back.waits_s == [110, 110]
    assert back.held_gpu_s == 2 * (10 + 60 + 90)


def test_sessions_share_a_node_and_a_whole_one_is_paid_for() -> None:
    shared = borrow([TWO_CELLS, TWO_CELLS], pool(150, gpus=2), SITE)
    assert shared.waits_s == [110, 110, 0, 0]
    assert shared.held_gpu_s == 2 * (10 + 60 + 120 + 60 + 150)
    assert shared.used_gpu_s == 4 * 60


def test_whoever_finds_the_pool_full_waits_for_a_node_of_others() -> None:
    other = Session(105, 1, (Cell(60, 0),))
    assert borrow([TWO_CELLS, other], pool(150, most=1), SITE).waits_s == [110, 65, 0]


def test_a_request_is_withdrawn_when_a_node_comes_free_before_it() -> None:
    one = Session(0, 1, (Cell(60, 0),))
    late = Session(150, 1, (Cell(60, 0),))  # the first ends at 170, long before the second node came
    played = borrow([one, late], pool(30), SITE)
    assert played.waits_s == [110, 20]
    assert played.held_gpu_s == 10 + 60 + 60 + 30


def test_an_interactive_job_is_held_while_its_user_thinks() -> None:
    held = hold_per_session([TWO_CELLS], SITE)
    assert held.held_gpu_s == 10 + 60 + 120 + 60
    assert mean_wait_s(held) == pytest.approx(55)
