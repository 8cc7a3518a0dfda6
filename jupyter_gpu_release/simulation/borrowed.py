"""The scheduler in the replay on nodes that it borrows: :func:`plan_pool` asks for them and gives them back."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from ..scheduling.plugins.vetoes import veto
from ..scheduling.pool import Lent, Pool, plan_pool
from ..scheduling.queues.queues_file import QueuesFile
from ..scheduling.workload import GPU, in_thousandths
from .cluster import ClusterSpec, FreeGpus, NodeKind
from .configured import Configured
from .replay import Begin
from .trace import Job

#: from a job's begin until its node takes runs
BOOT_S = 10.0
#: why a node that is not there takes no runs
_AWAY = "not lent"


@dataclass(frozen=True)
class Site:
    """How long a job waits in the site's queue, which costs nothing, and then its node, until it takes runs."""

    queue_s: float
    boot_s: float = BOOT_S


def cluster_of_pool(pool: Pool) -> ClusterSpec:
    """The pool when it has all of its nodes."""
    return ClusterSpec((NodeKind(pool.shape.gpus // GPU, pool.most, pool.shape.gpu_type),))


class Borrowed(Configured):
    """As configured, on a pool's nodes. One that is not lent is away for the scheduler. Walltimes are left out."""

    def __init__(
        self, free: FreeGpus, pool: Pool, site: Site, file: QueuesFile | None = None, restartable: float = 0.0
    ) -> None:
        self._names = [f"node {number}" for number in range(pool.most)]
        nodes = [replace(pool.shape, name=name, left_s=math.inf) for name in self._names]
        super().__init__(free, file, restartable=restartable, nodes=nodes)
        self._pool, self._site = pool, site
        self._numbers = itertools.count()
        #: job → when it begins, or has begun; its node is not there yet
        self._jobs_begin_s: dict[str, float] = {}
        #: node → when its job has begun, and since when it has no work
        self._begun_s: dict[str, float] = {}
        self._idle_since_s: dict[str, float] = {}
        self._given_back_gpu_s = 0.0
        for name in self._names:
            self._state.nodes.set_outside(name, 0, _AWAY)

    def held_gpu_s(self, now_s: float) -> float:
        """GPU-seconds of all jobs that have begun."""
        begun = [*self._begun_s.values(), *self._jobs_begin_s.values()]
        held_s = sum(now_s - begun_s for begun_s in begun if begun_s <= now_s)
        return self._given_back_gpu_s + held_s * self._pool.shape.gpus / GPU

    def start(self, now_s: float, begin: Begin) -> None:
        """Take in nodes that have come, start what fits, and plan for the rest."""
        for job, begun_s in list(self._jobs_begin_s.items()):
            if begun_s + self._site.boot_s <= now_s:
                self._arrive(self._jobs_begin_s.pop(job))
        super().start(now_s, begin)
        self._note_idle(now_s)
        self._plan(now_s)
        self.next_s = min(self._times(now_s), default=math.inf)

    def _times(self, now_s: float) -> list[float]:
        """Moments at which something happens to a node, if nothing else does before."""
        begins_s = list(self._jobs_begin_s.values())
        arrives_s = [begun_s + self._site.boot_s for begun_s in begins_s]
        over_s = [since_s + self._pool.idle_return_s for since_s in self._idle_since_s.values()]
        return [time_s for time_s in (*begins_s, *arrives_s, *over_s) if time_s > now_s]

    def _arrive(self, begun_s: float) -> None:
        name = next(name for name in self._names if name not in self._begun_s)
        self._begun_s[name] = begun_s
        self._state.nodes.set_outside(name, 0)

    def _note_idle(self, now_s: float) -> None:
        free, whole = self._state.nodes.free, self._pool.shape.gpus
        is_idle = {name for name in self._begun_s if free[name] == whole}
        self._idle_since_s = {name: self._idle_since_s.get(name, now_s) for name in self._begun_s if name in is_idle}

    def _plan(self, now_s: float) -> None:
        asked = [job for job, begins_s in self._jobs_begin_s.items() if begins_s > now_s]
        coming = len(self._jobs_begin_s) - len(asked)
        is_full = not asked and len(self._begun_s) + coming >= self._pool.most
        idle_s = {name: now_s - since_s for name, since_s in self._idle_since_s.items()}
        is_over = max(idle_s.values(), default=0.0) >= self._pool.idle_return_s
        if not is_over and (is_full or not (self._waiting or asked)):
            return  # nothing would follow
        waiting = sorted(self._state.waiting(), key=lambda job: job.ordinal)
        wanted = [job.run for job in waiting if veto(self._state, job) is None]
        there = [Lent(name, self._state.nodes.free[name], idle_s=idle_s.get(name)) for name in self._begun_s]
        plan = plan_pool(self._pool, wanted, there, coming, asked)
        for job in plan.withdraw:
            del self._jobs_begin_s[job]
        for name in plan.give_back:
            self._state.nodes.set_outside(name, 0, _AWAY)
            self._given_back_gpu_s += (now_s - self._begun_s.pop(name)) * self._pool.shape.gpus / GPU
            del self._idle_since_s[name]
        for _ in range(plan.submit):
            self._jobs_begin_s[f"job {next(self._numbers)}"] = now_s + self._site.queue_s

    def _ranks(self, job: Job) -> tuple[int, int]:
        """A job that is larger than a node has a rank for each GPU."""
        gpus = in_thousandths(job.gpus)
        return (1, gpus) if gpus <= self._pool.shape.gpus else (gpus // GPU, GPU)
