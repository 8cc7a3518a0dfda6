"""One pass of the policy with 10,000 runs in 30 queues waiting for 1,000 nodes of 8 GPUs, on an index that is kept."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc

from jupyter_gpu_release.scheduling.decisions import Preempt, Start
from jupyter_gpu_release.scheduling.queues.tree import Queue
from jupyter_gpu_release.scheduling.schedule import decide_on
from jupyter_gpu_release.scheduling.state import ClusterSnapshot, State
from jupyter_gpu_release.scheduling.workload import GPU, Node, Rank, Run

_NODES, _QUEUES, _USERS, _WORKS = 1000, 30, 120, 10


def passes(waiting: int, changes: int) -> list[float]:
    """Milliseconds of each of some passes: a run ends, another comes, a pass decides, what it starts is started."""
    state, source = _cluster(), _Source()
    while len(state.jobs) < _NODES * 4 + waiting:
        state.submit(source.run(0.0))
    while _carry_out(state, 0.0):
        pass
    took = []
    for now_s in range(1, changes + 1):
        running = sorted(state.running)
        over, comes = source.random.choice(running), source.run(float(now_s))
        began = time.perf_counter()
        state.end(over)
        state.submit(comes)
        _carry_out(state, float(now_s))
        took.append(1000 * (time.perf_counter() - began))
    return took


def bytes_per_queued_run(waiting: int) -> float:
    """Memory of the policy for each run that waits."""
    state, source = _cluster(), _Source()
    gc.collect()
    tracemalloc.start()
    for _ in range(waiting):
        state.submit(source.run(0.0))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / waiting


def _cluster() -> State:
    nodes = tuple(Node(f"node{index}", 8 * GPU, "h100" if index % 2 else "a100") for index in range(_NODES))
    queues = tuple(Queue(f"queue{index}", guaranteed=200 * GPU) for index in range(_QUEUES))
    return State(ClusterSnapshot(nodes, queues))


class _Source:
    """Runs of 120 users, each with ten kinds of work: a size, an expected time; a tenth of them may be taken back."""

    def __init__(self) -> None:
        self.random = random.Random(17)
        self._made = 0
        self._kinds = {(user, work): self._kind() for user in range(_USERS) for work in range(_WORKS)}

    def _kind(self) -> tuple[int, int, float, bool]:
        draw = self.random
        ranks, each = draw.choice([(1, 1)] * 6 + [(1, 2), (1, 4), (1, 8), (2, 8), (8, 1)])
        return ranks, each, round(1.2 ** draw.randrange(20, 50)), draw.random() < 0.1

    def run(self, now_s: float) -> Run:
        user = self.random.randrange(_USERS)
        ranks, each, expected_s, restartable = self._kinds[user, self.random.randrange(_WORKS)]
        self._made += 1
        return Run(
            f"run{self._made}",
            f"queue{user % _QUEUES}",
            (Rank(),) * ranks,
            each * GPU,
            ranks,
            user=f"user{user}",
            restartable=restartable,
            submitted_at=now_s - self.random.random(),
            expected_s=expected_s,
            nodes="any" if ranks > 1 else 1,
        )


def _carry_out(state: State, now_s: float) -> int:
    """Start what may start; whoever was asked to step aside waits again. Tells how many decisions there were."""
    decisions = decide_on(state, now_s)
    for decision in decisions:
        if isinstance(decision, Preempt):
            run = state.jobs[decision.run].run
            state.end(decision.run)
            state.submit(run)
    for decision in decisions:
        if isinstance(decision, Start) and decision.promised:
            state.promise(decision.run, decision.ranks)
        elif isinstance(decision, Start):
            state.start(decision.run, decision.ranks, now_s)
    return len(decisions)
