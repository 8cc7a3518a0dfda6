"""Rules for who may have GPUs that a kernel keeps, and for when keeping is worth it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..units import sum_gpus
from .decisions import Release, Slot
from .nodes import Group, Nodes
from .placement import find_places, suits
from .plugins.limits import permits
from .plugins.vetoes import veto
from .resource_requests import is_shaped_like
from .state import Job, State
from .workload import Run, in_thousandths

if TYPE_CHECKING:
    from ..protocol.runs import Outcome


@dataclass(frozen=True, slots=True)
class Asker:
    """Facts about whoever asks for a run. ``detached``: nobody sits before it; ``wait_s``: ``--wait``."""

    session: str = ""
    detached: bool = False
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class KeepTerms:
    """Terms on which a kernel (its session) keeps a lease between two of its cells."""

    session: str
    until_s: float
    #: only while nobody else waits for them
    auto: bool = False


@dataclass(frozen=True, slots=True)
class HeldLease:
    """GPUs and CPUs that a run holds, that it gives back, or that its kernel keeps on ``terms``."""

    lease: str
    run: Run
    slots: tuple[Slot, ...]
    started_at: float | None = None
    #: they are free in a moment
    is_coming: bool = False
    terms: KeepTerms | None = None
    #: of an elastic run: ranks that it would have at most; 0: it stays as it is
    wanted_ranks: int = 0
    #: its run is over, but nobody knows when its GPUs are free
    is_stuck: bool = False
    #: of a part: the GPU that it is on, once Ray has told
    gpu: str = ""

    @property
    def gpus(self) -> float:
        """GPUs on all nodes."""
        return sum_gpus(slot.gpus for slot in self.slots)


#: leases that are kept, with their terms
Warm = Sequence[tuple[HeldLease, KeepTerms]]


def fits(run: Run, lease: HeldLease, nodes: Nodes) -> bool:
    """Tell if a run can have the lease as it is: the same number of GPUs, spread the same way, on nodes that suit."""
    return is_shaped_like(run, lease.slots) and all(_is_there(run, slot.node, nodes) for slot in lease.slots)


def _is_there(run: Run, name: str, nodes: Nodes) -> bool:
    node = nodes.by_name.get(name)
    return node is not None and name not in nodes.away and name not in run.unready and suits(run, node)


def own_lease(state: State, job: Job, session: str, warm: Warm) -> HeldLease | None:
    """The lease that the run's own kernel keeps for it; of several the one that would end first."""
    own = [(lease, terms) for lease, terms in warm if session and terms.session == session]
    fitting = [(terms.until_s, lease.lease, lease) for lease, terms in own if fits(job.run, lease, state.nodes)]
    if not fitting:
        return None
    lease = min(fitting, key=lambda found: found[:2])[2]
    # what it holds counts in its own queue already
    return lease if lease.run.queue == job.run.queue or _may_have(state, job, lease) else None


def _may_have(state: State, job: Job, lease: HeldLease) -> bool:
    """Tell if no rule keeps a run from the GPUs of a lease."""
    places = [(slot.node, in_thousandths(slot.gpus)) for slot in lease.slots if slot.node in state.nodes.by_name]
    return veto(state, job) is None and permits(state, job.run, places)


@dataclass(frozen=True)
class Recall:
    """The leases that a run takes back when it is next in the queue. ``whole``: a lease that it can have as it is."""

    whole: HeldLease | None = None
    given_up: tuple[HeldLease, ...] = ()
    #: with what is given up it can start
    is_enough: bool = False

    def releases(self, user: str) -> list[Release]:
        """The decisions."""
        own, others = "another run of its user needs it", "somebody waits for it"
        return [Release(lease.lease, own if lease.run.user == user else others) for lease in self.given_up]


def recall(state: State, job: Job, groups: Sequence[Group], asker: Asker, warm: Warm) -> Recall:
    """The leases that help a blocked run: kept GPUs of its own user first, then those that are kept while nobody waits.

    ``groups``: the nodes that it waits for. When nothing is enough, what is kept on the node that comes nearest is
    given up all the same: others' cells must not go on overtaking the run there. Kept GPUs count for a queue and a
    user, too: a run that is stopped by a limit of theirs is helped by whatever gets it below that.
    """
    run, is_stopped = job.run, veto(state, job) is not None
    helpful = [
        (lease.run.user != run.user, lease.gpus, terms.until_s, lease.lease, lease)
        for lease, terms in warm
        if _may_take(run, asker, lease, terms) and _helps(state, run, groups, lease, anywhere=is_stopped)
    ]
    leases = [found[-1] for found in sorted(helpful, key=lambda found: found[:-1])]
    whole = next((each for each in leases if fits(run, each, state.nodes) and _may_take_whole(state, job, each)), None)
    if whole is not None:
        return Recall(whole, is_enough=True)
    enough = _least(leases, lambda chosen: _would_fit(state, job, groups, chosen))
    if enough:
        return Recall(None, enough, is_enough=True)
    if is_stopped:
        return Recall(None, _least(leases, lambda chosen: _may_start(state, job, chosen)))
    return Recall(None, _nearest(state, leases))


def _may_take(run: Run, asker: Asker, lease: HeldLease, terms: KeepTerms) -> bool:
    """Tell if a run may take a lease. Users at a cell must not wait for GPUs kept for them. A detached run can wait for
    some minutes, and would have them for hours where another notebook's next cell was promised them.
    """
    if terms.auto:
        return True
    return lease.run.user == run.user and (not asker.detached or terms.session == asker.session)


def _helps(state: State, run: Run, groups: Sequence[Group], lease: HeldLease, *, anywhere: bool) -> bool:
    names = [slot.node for slot in lease.slots if slot.node in state.nodes.by_name]
    waited_for = anywhere or any(state.nodes.group(name) in groups for name in names if name not in state.nodes.away)
    return run.gpus_per_rank > 0 and waited_for


def _least(helpful: Sequence[HeldLease], is_enough: Callable[[Sequence[HeldLease]], bool]) -> tuple[HeldLease, ...]:
    """The first of ``helpful`` that are enough together, without those that turn out not to be needed."""
    chosen: list[HeldLease] = []
    for lease in helpful:
        chosen.append(lease)
        if is_enough(chosen):
            break
    else:
        return ()
    for lease in list(chosen):
        rest = [other for other in chosen if other is not lease]
        if is_enough(rest):
            chosen = rest
    return tuple(chosen)


def _would_fit(state: State, job: Job, groups: Sequence[Group], leases: Iterable[HeldLease]) -> bool:
    with without(state, leases):
        return veto(state, job) is None and find_places(state, job, soon=True, groups=groups) is not None


def _may_start(state: State, job: Job, leases: Iterable[HeldLease]) -> bool:
    """Tell if no rule would stop the run were these leases given up."""
    with without(state, leases):
        return veto(state, job) is None


def _may_take_whole(state: State, job: Job, lease: HeldLease) -> bool:
    with without(state, [lease]):
        return _may_have(state, job, lease)


@contextmanager
def without(state: State, leases: Iterable[HeldLease]) -> Iterator[None]:
    """Let what these leases hold be free for a while, and count for nobody."""
    slots = [(lease.run, slot) for lease in leases for slot in lease.slots if slot.node in state.nodes.by_name]
    for run, slot in slots:
        _take(state, run, slot, -1)
    try:
        yield
    finally:
        for run, slot in slots:
            _take(state, run, slot, 1)


def _take(state: State, run: Run, slot: Slot, sign: int) -> None:
    gpus = in_thousandths(slot.gpus)
    state.nodes.take(slot.node, sign * gpus, sign * slot.cpus)
    state.count(run, slot.node, sign * gpus)


def _nearest(state: State, helpful: Sequence[HeldLease]) -> tuple[HeldLease, ...]:
    """The leases on the node that would have most room then."""
    if not helpful:
        return ()
    places = dict.fromkeys(slot.node for lease in helpful for slot in lease.slots)
    with without(state, helpful):
        best = max(places, key=lambda name: state.nodes.room(name, soon=True) if name in state.nodes.by_name else 0)
    return tuple(lease for lease in helpful if any(slot.node == best for slot in lease.slots))


#: ends after which the person will run the cell again, on these GPUs most likely
_KEPT_AFTER = frozenset({"ok", "error", "interrupted", "timeout"})
#: exceptions by which PyTorch, CuPy and JAX say that the GPU, its driver or its memory failed them
_GPU_ERRORS = frozenset(
    {"AcceleratorError", "OutOfMemoryError", "CUDARuntimeError", "CUDADriverError", "XlaRuntimeError", "NcclError"}
)
_GPU_WORDS = ("CUDA error", "CUDA driver error", "HIP error", "cuDNN error", "NCCL error", "CUDA out of memory")


def is_worth_keeping(outcome: Outcome) -> bool:
    """Tell if the next cell may have the same GPUs: not after a crash, a kill, too little memory or a GPU's error."""
    error = outcome.error
    if outcome.status not in _KEPT_AFTER or (outcome.gpu_use is not None and outcome.gpu_use.left_bytes):
        return False
    if error is None:
        return True
    return not (error.code or error.ename in _GPU_ERRORS or error.evalue.startswith(_GPU_WORDS))
