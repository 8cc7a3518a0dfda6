"""Rules for who may have GPUs that a kernel keeps, and for when keeping is worth it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from ..protocol.runs import ResourceAsk
from .constraints import suits
from .snapshot import NodeState, QueuedRun, Release, Slot, WarmLease

if TYPE_CHECKING:
    from ..protocol.runs import Outcome

#: where an ask would be placed on these nodes now
PlacementFn = Callable[[ResourceAsk, tuple[NodeState, ...]], tuple[Slot, ...] | None]


def split_ended(warm: Iterable[WarmLease], now_s: float) -> tuple[list[Release], list[WarmLease]]:
    """Split off the leases whose time is over."""
    leases = list(warm)
    over = [Release(lease.lease, "its time is over") for lease in leases if lease.until_s <= now_s]
    return over, [lease for lease in leases if lease.until_s > now_s]


def fits(ask: ResourceAsk, lease: WarmLease, nodes: Sequence[NodeState]) -> bool:
    """Tell if ``ask`` can have the lease as it is: the same number of GPUs, spread the same way, on nodes that suit."""
    by_id = {node.node: node for node in nodes}
    return _shape(ask) == _shape(lease.ask) and all(
        (node := by_id.get(slot.node)) is not None and node.schedulable and suits(ask, node) for slot in lease.slots
    )


def _shape(ask: ResourceAsk) -> ResourceAsk:
    """The ask without what concerns the nodes' properties and the processes, which may differ from cell to cell."""
    return msgspec.structs.replace(
        ask,
        ranks=1,
        ps=0,
        evaluator=False,
        cpus=None,
        memory_bytes=None,
        gpu_type=None,
        min_gpu_memory_bytes=None,
        labels={},
    )


def own_lease(queued: QueuedRun, warm: Iterable[WarmLease], nodes: Sequence[NodeState]) -> WarmLease | None:
    """The lease that the run's own kernel keeps for it; of several the one that would end first."""
    own = [lease for lease in warm if queued.session and lease.session == queued.session]
    fitting = [lease for lease in own if fits(queued.ask, lease, nodes)]
    return min(fitting, key=lambda lease: lease.until_s, default=None)


@dataclass(frozen=True)
class Recall:
    """The leases that a run takes back when it is next in the queue. ``whole``: a lease that it can have as it is."""

    whole: WarmLease | None = None
    given_up: tuple[WarmLease, ...] = ()
    #: with what is given up (or is being given back already) it can start
    is_enough: bool = False

    @property
    def leases(self) -> Collection[str]:
        """Names of the leases that are somebody else's from now on."""
        return {lease.lease for lease in (*self.given_up, *([self.whole] if self.whole else []))}

    def releases(self, user: str) -> list[Release]:
        """The decisions."""
        return [
            Release(lease.lease, "another run of its user needs it" if lease.user == user else "somebody waits for it")
            for lease in self.given_up
        ]


def recall(queued: QueuedRun, warm: Iterable[WarmLease], nodes: tuple[NodeState, ...], place: PlacementFn) -> Recall:
    """The leases that help a blocked run: kept GPUs of its own user first, then those that are kept while nobody waits.

    When nothing is enough, what is kept on the node that comes nearest is given up all the same: others' cells must
    not go on overtaking the run there.
    """
    coming = tuple(replace(node, gpus_free=node.gpus_free + node.gpus_coming) for node in nodes)
    if place(queued.ask, coming) is not None:
        return Recall(is_enough=True)
    helpful = [lease for lease in warm if _may_take(queued, lease) and _helps(queued.ask, lease, nodes)]
    helpful.sort(key=lambda lease: (lease.user != queued.user, sum(slot.gpus for slot in lease.slots), lease.until_s))
    whole = next((lease for lease in helpful if fits(queued.ask, lease, nodes)), None)
    if whole is not None:
        return Recall(whole, is_enough=True)
    enough = _least(queued.ask, helpful, coming, place)
    return Recall(None, enough, is_enough=True) if enough else Recall(None, _nearest(helpful, coming))


def _may_take(queued: QueuedRun, lease: WarmLease) -> bool:
    """Tell if a run may take a lease. Users at a cell must not wait for GPUs kept for them. A detached run can wait for
    some minutes, and would have them for hours where another notebook's next cell was promised them.
    """
    if lease.auto:
        return True
    return lease.user == queued.user and (not queued.detached or lease.session == queued.session)


def _helps(ask: ResourceAsk, lease: WarmLease, nodes: Sequence[NodeState]) -> bool:
    places = {slot.node for slot in lease.slots}
    return ask.gpus > 0 and any(node.node in places and node.schedulable and suits(ask, node) for node in nodes)


def _least(
    ask: ResourceAsk, helpful: list[WarmLease], nodes: tuple[NodeState, ...], place: PlacementFn
) -> tuple[WarmLease, ...]:
    """The first of ``helpful`` that are enough together, without those that turn out not to be needed."""
    chosen: list[WarmLease] = []
    for lease in helpful:
        chosen.append(lease)
        if place(ask, without(nodes, chosen)) is not None:
            break
    else:
        return ()
    for lease in list(chosen):
        rest = [other for other in chosen if other is not lease]
        if place(ask, without(nodes, rest)) is not None:
            chosen = rest
    return tuple(chosen)


def _nearest(helpful: list[WarmLease], nodes: tuple[NodeState, ...]) -> tuple[WarmLease, ...]:
    if not helpful:
        return ()
    places = {slot.node for lease in helpful for slot in lease.slots}
    freed = [node for node in without(nodes, helpful) if node.node in places]
    best = max(freed, key=lambda node: node.gpus_free, default=None)
    return tuple(lease for lease in helpful if best and any(slot.node == best.node for slot in lease.slots))


def without(nodes: tuple[NodeState, ...], leases: Iterable[WarmLease]) -> tuple[NodeState, ...]:
    """The nodes once ``leases`` are gone."""
    slots = [slot for lease in leases for slot in lease.slots]
    return tuple(
        replace(
            node,
            gpus_free=node.gpus_free + sum(slot.gpus for slot in slots if slot.node == node.node),
            cpus_free=node.cpus_free + sum(slot.cpus for slot in slots if slot.node == node.node),
        )
        for node in nodes
    )


#: ends after which the person will run the cell again, on these GPUs most likely
_KEPT_AFTER = frozenset({"ok", "error", "interrupted", "timeout"})
#: exceptions by which PyTorch, CuPy and JAX say that the GPU, its driver or its memory failed them
_GPU_ERRORS = frozenset({
    "AcceleratorError", "OutOfMemoryError", "CUDARuntimeError", "CUDADriverError", "XlaRuntimeError", "NcclError",
})  # fmt: skip
_GPU_WORDS = ("CUDA error", "CUDA driver error", "HIP error", "cuDNN error", "NCCL error", "CUDA out of memory")


def is_worth_keeping(outcome: Outcome) -> bool:
    """Tell if the next cell may have the same GPUs: not after a crash, a kill, too little memory or a GPU's error."""
    error = outcome.error
    if outcome.status not in _KEPT_AFTER or (outcome.gpu_use is not None and outcome.gpu_use.left_bytes):
        return False
    if error is None:
        return True
    return not (error.code or error.ename in _GPU_ERRORS or error.evalue.startswith(_GPU_WORDS))
