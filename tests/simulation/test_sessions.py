from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.clusters.borrowed_nodes import Played, borrow, hold_per_session
from benchmarks.notebook_sessions import Cell, Session, generate, play, read_stats
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.scheduling.pool import Pool
from jupyter_gpu_release.scheduling.workload import GPU, Node
from jupyter_gpu_release.simulation.borrowed import Site

STATS = Path(__file__).parents[2] / "examples" / "traces" / "adobe_nb_stats.json"
TWO_CELLS = Session(0, 1, (Cell(60, 120), Cell(60, 0)))


@pytest.mark.parametrize(
    ("keep_s", "held_over_used", "warm"), [(60, 1.03, 0.60), (300, 1.08, 0.88), (1800, 1.14, 0.97)]
)
def test_drawn_sessions_hold_what_the_published_ones_held(keep_s: float, held_over_used: float, warm: float) -> None:
    tally = play(generate(read_stats(STATS), 60, seed=2), keep_s).document(None)
    assert tally["held_over_used"] == pytest.approx(held_over_used, abs=0.02)
    assert tally["found_warm"] == pytest.approx(warm, abs=0.04)


def test_the_next_cell_comes_after_the_last_ended_however_long_that_waited() -> None:
    tally = play([TWO_CELLS, Session(10, 1, (Cell(600, 0),))], 0, gpus=1)
    # the other session's cell takes the GPU between the two, and the second cell waits for it
    assert [round(wait) for wait in tally.waits_s] == [0, 50, 480]


def test_a_reserved_gpu_is_held_while_its_user_thinks() -> None:
    reserved = play([TWO_CELLS, Session(10, 1, (Cell(600, 0),))], float("inf"), gpus=1)
    assert [round(wait) for wait in reserved.waits_s] == [0, 0, 230]
    assert reserved.warm == 1
    assert reserved.held_gpu_s == pytest.approx(240 + 600, abs=1)


def test_a_lease_that_is_kept_ends_when_the_next_cell_takes_too_long() -> None:
    kept = play([TWO_CELLS], 60)
    assert kept.warm == 0
    assert kept.held_gpu_s == pytest.approx(60 + 60 + 60, abs=1)


def test_sessions_share_borrowed_nodes_and_an_interactive_job_is_held_while_its_user_thinks() -> None:
    sessions, site = [TWO_CELLS, TWO_CELLS], Site(queue_s=100, boot_s=10)
    shared = borrow(sessions, Pool(Node("", 2 * GPU), 2, idle_return_s=150), site)
    assert shared == Played(2 * (10 + 60 + 120 + 60 + 150) / (4 * 60), 55)
    assert hold_per_session(sessions, site) == Played((10 + 60 + 120 + 60) / (2 * 60), 55)


def test_the_same_seed_draws_the_same_sessions() -> None:
    stats = read_stats(STATS)
    assert generate(stats, 5, seed=3) == generate(stats, 5, seed=3) != generate(stats, 5, seed=4)


def test_quantiles_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    path.write_text("{}")
    with pytest.raises(OptionError, match=r"stats\.json: .*inferred_sessions"):
        read_stats(path)
