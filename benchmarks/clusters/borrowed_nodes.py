"""Notebook sessions on nodes that :func:`plan_pool` asks for and gives back, against an interactive job for each.

Closed-loop, as in :mod:`benchmarks.notebook_sessions`. A job waits in the site's queue first, which costs nothing; then
it holds its GPUs, while its node starts, too. Walltimes are left out on both sides.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jupyter_gpu_release.scheduling.pool import Lent, Pool, PoolPlan, plan_pool
from jupyter_gpu_release.scheduling.workload import GPU, Rank, Run

from ..notebook_sessions import Session, Tally


@dataclass(frozen=True)
class Site:
    """How long a job waits for its node, and a node until it takes cells."""

    queue_s: float
    boot_s: float = 10.0


@dataclass
class _Node:
    """A job of the site's that has begun."""

    name: str
    since_s: float
    free: int
    idle_since_s: float | None = None


@dataclass
class _Notebook:
    """A session on its way."""

    session: Session
    next_cell: int = 0
    asked_s: float = 0.0
    node: _Node | None = None


def hold_per_session(sessions: Sequence[Session], site: Site) -> Tally:
    """Each session has an interactive job from before its first cell until after its last."""
    tally = Tally()
    for session in sessions:
        used_s = sum(cell.duration_s for cell in session.cells)
        thinks_s = sum(cell.think_s for cell in session.cells[:-1])
        tally.used_gpu_s += used_s * session.gpus
        tally.held_gpu_s += (site.boot_s + used_s + thinks_s) * session.gpus
        tally.waits_s += [site.queue_s + site.boot_s, *(0.0 for _ in session.cells[1:])]
    return tally


def borrow(sessions: Sequence[Session], pool: Pool, site: Site) -> Tally:
    """All sessions share the pool's nodes; a cell takes the fullest that has room."""
    return _Play(sessions, pool, site).run()


@dataclass
class _Play:
    sessions: Sequence[Session]
    pool: Pool
    site: Site
    _tally: Tally = field(default_factory=Tally)
    _now_s: float = 0.0
    _waiting: list[_Notebook] = field(default_factory=list)
    _pending: list[str] = field(default_factory=list)
    _booting: dict[str, float] = field(default_factory=dict)
    _nodes: dict[str, _Node] = field(default_factory=dict)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def run(self) -> Tally:
        """Go from event to event, until the last node is given back."""
        for session in self.sessions:
            notebook = _Notebook(session)
            self._after(session.start_s, lambda notebook=notebook: self._ask(notebook))  # type: ignore[misc]
        while self._events:
            self._now_s = self._events[0][0]
            while self._events and self._events[0][0] <= self._now_s:
                heapq.heappop(self._events)[2]()
            self._place()
            self._carry_out(self._plan())
        self._tally.end_s = self._now_s
        return self._tally

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now_s + seconds, next(self._numbers), act))

    # ------------------------------------------------------------------------------------------- cells
    def _ask(self, notebook: _Notebook) -> None:
        notebook.asked_s = self._now_s
        self._waiting.append(notebook)

    def _place(self) -> None:
        """The oldest first; who does not fit does not hold up others."""
        left = []
        for notebook in self._waiting:
            room = [node for node in self._nodes.values() if node.free >= notebook.session.gpus * GPU]
            if room:
                self._begin_cell(notebook, min(room, key=lambda node: node.free))
            else:
                left.append(notebook)
        self._waiting = left

    def _begin_cell(self, notebook: _Notebook, node: _Node) -> None:
        self._tally.waits_s.append(self._now_s - notebook.asked_s)
        notebook.node, node.idle_since_s = node, None
        node.free -= notebook.session.gpus * GPU
        self._after(notebook.session.cells[notebook.next_cell].duration_s, lambda: self._end_cell(notebook, node))

    def _end_cell(self, notebook: _Notebook, node: _Node) -> None:
        cell = notebook.session.cells[notebook.next_cell]
        notebook.next_cell += 1
        self._tally.used_gpu_s += cell.duration_s * notebook.session.gpus
        node.free += notebook.session.gpus * GPU
        self._note_idle(node)
        if notebook.next_cell < len(notebook.session.cells):
            self._after(cell.think_s, lambda: self._ask(notebook))

    def _note_idle(self, node: _Node) -> None:
        if node.free == self.pool.shape.gpus:
            node.idle_since_s = self._now_s
            self._after(self.pool.idle_return_s, lambda: None)

    # ------------------------------------------------------------------------------------------- nodes
    def _plan(self) -> PoolPlan:
        """Nothing is planned while nobody waits, nothing is asked for, and no node has been idle for too long."""
        over_s = self._now_s - self.pool.idle_return_s
        is_over = any(node.idle_since_s is not None and node.idle_since_s <= over_s for node in self._nodes.values())
        if not (self._waiting or self._pending or is_over):
            return PoolPlan()
        wanted = [_run(str(number), notebook) for number, notebook in enumerate(self._waiting)]
        coming = len(self._booting)
        return plan_pool(self.pool, wanted, [self._lent(node) for node in self._nodes.values()], coming, self._pending)

    def _lent(self, node: _Node) -> Lent:
        idle_s = None if node.idle_since_s is None else self._now_s - node.idle_since_s
        return Lent(node.name, node.free, idle_s=idle_s)

    def _carry_out(self, plan: PoolPlan) -> None:
        self._pending = [job for job in self._pending if job not in plan.withdraw]
        for name in plan.give_back:
            self._tally.held_gpu_s += (self._now_s - self._nodes.pop(name).since_s) * self.pool.shape.gpus / GPU
        for _ in range(plan.submit):
            job = f"job {next(self._numbers)}"
            self._pending.append(job)
            self._after(self.site.queue_s, lambda job=job: self._begin_job(job))  # type: ignore[misc]

    def _begin_job(self, job: str) -> None:
        if job in self._pending:
            self._pending.remove(job)
            self._booting[job] = self._now_s
            self._after(self.site.boot_s, lambda: self._arrive(job))

    def _arrive(self, job: str) -> None:
        self._nodes[job] = _Node(job, self._booting.pop(job), self.pool.shape.gpus)
        self._note_idle(self._nodes[job])


def _run(name: str, notebook: _Notebook) -> Run:
    return Run(name, "default", (Rank(),), notebook.session.gpus * GPU, 1)


def mean_wait_s(tally: Tally) -> float:
    """Over all cells."""
    return math.fsum(tally.waits_s) / len(tally.waits_s)
