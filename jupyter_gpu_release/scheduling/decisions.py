"""Decisions of one pass, with the facts behind them; ``reasons`` puts these into words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Start:
    """Start these ranks (index, node); ``promised``: when preempted runs have gone."""

    run: str
    ranks: tuple[tuple[int, str], ...]
    promised: bool = False
    #: the action that decided it
    action: str = "allocate"


@dataclass(frozen=True, slots=True)
class Preempt:
    """Preempt these ranks for another run; ``moves``: where they go on (index, node)."""

    run: str
    ranks: tuple[int, ...]
    beneficiary: str
    action: str
    moves: tuple[tuple[int, str], ...] = ()
    #: the beneficiary's
    user: str = ""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No node, or no set of nodes, has that much free now; GPUs in thousandths."""

    ranks: int
    gpus_per_rank: int
    free: int
    total: int
    #: of what is not free, kept by kernels for their next cells
    kept: int = 0
    #: nodes where the run was lost do not count
    is_choosy: bool = False


@dataclass(frozen=True, slots=True)
class NoCpus:
    """No node that is up has that many CPUs free now."""

    cpus: int
    free: int


@dataclass(frozen=True, slots=True)
class Away:
    """Nodes that fit do not answer just now, and are expected back."""

    reason: str


@dataclass(frozen=True, slots=True)
class Coming:
    """Its GPUs are being given back by somebody else just now."""


@dataclass(frozen=True, slots=True)
class Unready:
    """Nodes have room, and lack its environment: it is built there first."""


@dataclass(frozen=True, slots=True)
class OverMax:
    """The queue (or one above it) may not have more."""

    queue: str
    max: int
    #: of this type of GPU
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class OverUserMax:
    """The user may not have more in this queue."""

    queue: str
    user: str
    max: int
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class OverGuarantee:
    """A run that cannot be taken back may not use more than the guarantee of its queue."""

    queue: str
    guaranteed: int
    #: of this type of GPU
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class NeverFits:
    """No set of nodes that are up could take the run, were they empty."""

    lack: str


@dataclass(frozen=True, slots=True)
class NotYet:
    """A node that would do has room, but is kept for whoever is ahead, or was not looked at by these actions."""

    ahead: str = ""
    #: whose run that is
    user: str = ""


@dataclass(frozen=True, slots=True)
class ForAll:
    """It could begin with fewer GPUs, and would end later than when it waits for all; in thousandths."""

    gpus: int
    free: int


@dataclass(frozen=True, slots=True)
class NodeWanted:
    """No node that is up has room, and who lends nodes knows: ``answer`` is what it does about it.

    ``says``: its own words; empty: it is Ray's autoscaler.
    """

    lacks: NoRoom | NoCpus | NeverFits | NotYet
    answer: Literal["asked", "starting", "refused"]
    says: str = ""


#: causes that another node would remove
LACKS_NODE = (NoRoom, NoCpus, NeverFits, NotYet)

Cause = (
    NoRoom
    | NoCpus
    | Away
    | Coming
    | Unready
    | OverMax
    | OverUserMax
    | OverGuarantee
    | NeverFits
    | NotYet
    | ForAll
    | NodeWanted
)


@dataclass(frozen=True, slots=True)
class Wait:
    """The run stays in its queue at ``position`` (1 = next)."""

    run: str
    queue: str
    position: int
    cause: Cause


Decision = Start | Preempt | Wait


@dataclass(frozen=True, slots=True)
class Slot:
    """The part of a lease on one node: whole GPUs or a part of one, and CPUs for a run without GPUs."""

    node: str
    gpus: float
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """Start a run on exactly these slots; ``lease``: they are those of this warm lease, which is handed over."""

    run: str
    placement: tuple[Slot, ...]
    lease: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """A run is next on these slots, as soon as those who are giving them back have done so."""

    run: str
    placement: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Preempt all of these, so that a run can start on just these ranks (index, node); or none of them."""

    run: str
    ranks: tuple[tuple[int, str], ...]
    placement: tuple[Slot, ...]
    action: str
    preempts: tuple[Preempt, ...]


@dataclass(frozen=True, slots=True)
class Grow:
    """Give an elastic run, which holds ``lease``, more ranks (index, node) on these slots."""

    run: str
    lease: str
    ranks: tuple[tuple[int, str], ...]
    placement: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Expire:
    """A run has waited as long as it may (``--wait``)."""

    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Give a warm lease back, for ``reason`` in words."""

    lease: str
    reason: str
