"""The scheduler itself in the replay, with the queues of a file: what `--queues FILE` plays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import OptionError
from ..scheduling.decisions import Start
from ..scheduling.estimates import Campaign, Estimates
from ..scheduling.queues.document import QueuesFile, parse_queues
from ..scheduling.schedule import decide_on
from ..scheduling.state import ClusterSnapshot, State
from ..scheduling.workload import GPU, Needs, Node, Rank, Run
from .cluster import FreeGpus
from .replay import SimulatedPolicy
from .trace import Job

#: runs whose expected times lie within such a factor of each other count as alike
_STEP = 1.2


def read_queues(path: Path) -> QueuesFile:
    """Read a queues file; raises :class:`OptionError` that names the line."""
    try:
        return parse_queues(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise OptionError(f"--queues {path}: {reason}", hint="give a queues file that can be read") from error


class Queued(SimulatedPolicy):
    """Queues, shares, priorities and backfill as the file says. GPUs of one type are one pool."""

    def __init__(self, free: FreeGpus, file: QueuesFile) -> None:
        super().__init__(free)
        self._file = file
        self._estimates = Estimates()
        nodes = tuple(Node(_name(gpu_type), gpus * GPU, gpu_type) for gpu_type, gpus in free.pools())
        self._types = {_name(gpu_type): gpu_type for gpu_type, _ in free.pools()}
        queues = tuple(file.tree.queues.values())
        self._state = State(ClusterSnapshot(nodes, queues, (), file.policy))
        self._jobs: dict[str, tuple[Job, Campaign]] = {}
        self._starts: dict[int, float] = {}

    def submit(self, job: Job, now_s: float) -> None:
        """Queue it where the file wants it: in its own queue, else in its user's."""
        campaign = self._estimates.submitted(job.user, (job.gpus, job.gpu_type), now_s, job.task)
        queue = self._queue(job)
        run = Run(
            run=str(job.index),
            queue=queue,
            ranks=(Rank(),),
            gpus_per_rank=job.gpus * GPU,
            min_ranks=1,
            priority=self._file.priority_for(queue, job.priority or "normal"),
            user=job.user,
            submitted_at=now_s,
            expected_s=_rounded(self._estimates.expected_s(campaign, now_s)),
            needs=Needs(gpu_type=job.gpu_type),
        )
        self._jobs[run.run] = (job, campaign)
        self._state.submit(run)

    def _queue(self, job: Job) -> str:
        named = job.queue if job.queue in self._file.tree.leaves() else None
        try:
            return self._file.queue_for(job.user, named)
        except OptionError as error:
            raise OptionError(f"row {job.row} of the trace: {error.message}", hint=error.hint) from error

    def end(self, job: Job, now_s: float) -> None:
        """Take it out, and learn how long it took."""
        _, campaign = self._jobs.pop(str(job.index))
        self._state.end(str(job.index))
        started_s = self._starts.pop(job.index)
        self._estimates.ended(campaign, started_s, now_s - started_s)

    def start(self, now_s: float, begin: Callable[[Job], bool]) -> None:
        """Carry out a pass."""
        for decision in decide_on(self._state, now_s):
            if not isinstance(decision, Start):
                continue
            job, campaign = self._jobs[decision.run]
            if not begin(replace(job, gpu_type=self._types[decision.ranks[0][1]])):
                raise RuntimeError(f"job {job.index} does not fit where it was placed")
            self._state.start(decision.run, decision.ranks, now_s)
            self._starts[job.index] = now_s
            self._estimates.started(campaign, now_s)


def _name(gpu_type: str) -> str:
    return gpu_type or "gpus"


def _rounded(seconds: float) -> float:
    return round(_STEP ** round(math.log(max(1.0, seconds), _STEP)), 3)
