"""Frozen records of what the policy sees and of what it answers; nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from ..protocol.runs import ResourceAsk


@dataclass(frozen=True)
class NodeState:
    """One node. ``*_free`` is what no lease (and nobody outside) holds; ``schedulable``: may take new runs."""

    node: str
    host: str = ""
    gpus_total: int = 0
    gpus_free: int = 0
    cpus_total: int = 0
    cpus_free: int = 0
    #: 0: not known
    memory_bytes: int = 0
    gpu_name: str = ""
    #: memory of the smallest GPU; 0: not known
    gpu_memory_bytes: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    #: held by leases that are being given back just now
    gpus_coming: int = 0
    schedulable: bool = True
    #: takes runs, or is expected to within a minute (its agent starts, or is silent since a moment ago)
    expected: bool = True
    #: why it takes none, in words
    reason: str = ""


@dataclass(frozen=True)
class QueuedRun:
    """A run that waits. ``ordinal`` grows with each submission."""

    run: str
    ask: ResourceAsk
    ordinal: int
    submitted_at: float
    user: str = ""
    wait_s: float | None = None
    #: the kernel that submitted it
    session: str = ""
    #: nobody sits before it
    detached: bool = False

    @cached_property
    def shape(self) -> bytes:
        """Equal for runs that ask for the same."""
        return msgspec.msgpack.encode(self.ask)


@dataclass(frozen=True)
class Slot:
    """A run's part on one node: this many GPUs, and CPUs for a run without GPUs."""

    node: str
    gpus: int
    cpus: int = 0


@dataclass(frozen=True)
class WarmLease:
    """GPUs that stay with a kernel between two of its cells. Nodes count them as taken."""

    lease: str
    slots: tuple[Slot, ...]
    #: what they were granted for
    ask: ResourceAsk
    user: str
    session: str
    until_s: float
    #: only while nobody else waits for them
    auto: bool = False


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment."""

    nodes: tuple[NodeState, ...] = ()
    queue: tuple[QueuedRun, ...] = ()
    warm: tuple[WarmLease, ...] = ()


@dataclass(frozen=True)
class Grant:
    """Start ``run`` on exactly these slots; ``lease``: they are those of this warm lease, which is handed over."""

    run: str
    placement: tuple[Slot, ...]
    lease: str = ""


@dataclass(frozen=True)
class Wait:
    """``run`` stays in the queue at ``position`` (1 = next), for ``reason`` in words."""

    run: str
    position: int
    reason: str


@dataclass(frozen=True)
class Expire:
    """``run`` has waited as long as it may (``--wait``)."""

    run: str
    reason: str


@dataclass(frozen=True)
class Release:
    """Give a warm lease back, for ``reason`` in words."""

    lease: str
    reason: str


Decision = Grant | Wait | Expire | Release
