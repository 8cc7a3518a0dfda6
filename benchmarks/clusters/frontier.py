"""``idle_return``: hours that the pool's nodes are held for each hour used, against waits."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpu_release.protocol.config import SlurmPool
from jupyter_gpu_release.scheduling.pool import pool_of
from jupyter_gpu_release.simulation.borrowed import Site

from ..notebook_sessions import Session, generate, read_stats
from ..report import Report
from .borrowed_nodes import Played, borrow, hold_per_session

_STATS = Path(__file__).parents[2] / "examples" / "traces" / "adobe_nb_stats.json"
#: GPUs of each node, and seconds that a job waits in the queue; ``idle_return`` is chosen by the first
_SITES = ((1, 300), (1, 60), (1, 0), (4, 300))
IDLE_RETURN_S = (60, 180, 300, 600, 1200, 1800)
#: mean wait that borrowing may add
_MOST_WAIT_S = 30.0


def add_frontier(report: Report, *, quick: bool) -> None:
    """Play the published notebook sessions, of one GPU each."""
    sessions = generate(read_stats(_STATS), 10 if quick else 341, gpus=1)
    default_s = SlurmPool(max_nodes=1).idle_return_s
    for gpus, queue_s in _SITES[:1] if quick else _SITES:
        found = {idle_s: _borrow(report, sessions, gpus, queue_s, idle_s) for idle_s in IDLE_RETURN_S}
        if (gpus, queue_s) == _SITES[0]:
            held = hold_per_session(sessions, Site(queue_s))
            _add(report, "pool", found[int(default_s)])
            _add(report, "interactive", held)
            within = [idle_s for idle_s, played in found.items() if played.mean_wait_s <= _MOST_WAIT_S]
            report.add("idle_return_chosen", [min(within, default=IDLE_RETURN_S[-1])], "s")
    report.notes.append(
        "node_hours: GPU-hours of the nodes held ÷ GPU-hours used; added_wait: mean over all cells. A job waits in the"
        " site's queue for 300 s (or so many), a node starts for 10 s. pool: with the default of idle_return."
        " interactive: a job for each session. Target: added_wait ≤ 30 s"
    )


def _borrow(report: Report, sessions: list[Session], gpus: int, queue_s: int, idle_s: int) -> Played:
    pool = SlurmPool(max_nodes=len(sessions), gpus_per_node=gpus, idle_return=f"{idle_s}s")
    played = borrow(sessions, pool_of(pool), Site(queue_s))
    _add(report, f"pool_{gpus}gpu_{queue_s}s_idle{idle_s}s", played)
    return played


def _add(report: Report, name: str, played: Played) -> None:
    report.add(f"{name}_node_hours", [played.held_over_used], "×")
    report.add(f"{name}_added_wait", [played.mean_wait_s], "s")
