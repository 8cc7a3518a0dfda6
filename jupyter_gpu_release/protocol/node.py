"""Messages between the gateway and the node agents: records as in :mod:`.protocol.runs`.

The gateway gives a :class:`StartOrder` to a node agent, which hands it to its ranks, and gets :class:`NodeReport`.
"""

from __future__ import annotations

import msgspec

from .config import DEFAULT_HASH_SEED
from .events import Event
from .runs import Outcome, PersistWait


class AgentConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings that a node agent is made with. ``runtime`` is a short local folder for its sockets."""

    store: str
    runtime: str
    simulated: bool = False
    #: libraries that the fork server imports; empty: the default list
    preload: list[str] = msgspec.field(default_factory=list)
    cluster: str = ""
    ray_namespace: str = "jupyter_gpu_release"
    gateway_actor: str = "gateway"
    #: folder on a local disk of the node for results that cannot be written to the store yet (below it one a host)
    spool: str = ""
    #: most bytes of results that may wait in the node's memory; 0: a quarter of it
    persist_memory_bytes: int = 0
    #: writes of results to the store, bytes a second and run; 0: no limit
    persist_bytes_per_s: int = 0
    #: what ``store.json`` in the store must say; empty: not looked at
    store_id: str = ""
    #: ``PYTHONHASHSEED`` of the ranks
    hash_seed: str = DEFAULT_HASH_SEED


def grant_socket(runtime: str, node: str) -> str:
    """Path of the Unix datagram socket on which a node's agent hears from the lease tasks on its node."""
    return f"{runtime}/grants-{node[:12]}.sock"


def lease_worker_socket(runtime: str, node: str) -> str:
    """Path of the Unix stream socket by which a node's agent holds on to the worker that runs lease tasks there."""
    return f"{runtime}/worker-{node[:12]}.sock"


class GrantNotice(msgspec.Struct, frozen=True):
    """A lease task to the agent of its node: the accelerator ids that Ray gave the run."""

    run: str
    gpu_ids: list[str]


class Member(msgspec.Struct, frozen=True):
    """A further node of a gang, and how many ranks run there."""

    node: str
    host: str
    ranks: int


class GangOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts that the first node of a gang (its leader) has to know of the rest."""

    members: list[Member] = msgspec.field(default_factory=list)
    #: proves to the leader that who connects was sent by the gateway
    secret: str = ""
    #: processes without a GPU, all on the first node
    ps: int = 0
    evaluator: bool = False
    rank_timeout_s: float | None = None
    #: frameworks are told of their places, also if there is one rank only
    is_gang: bool = False


class JoinOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lend ranks of this node to a gang that another node leads."""

    run: str
    node: str
    ranks: int
    gpus: int
    #: where the leader's agent listens
    address: str
    port: int
    secret: str
    gpu_ids: list[str] | None = None
    fresh: bool = False


class StartOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Start the ranks of a run on one node; it leads the ranks of the gang's other nodes, if there are any."""

    run: str
    payload: bytes
    #: the run's folder on the store, as this node sees it
    folder: str
    #: how many GPUs on this node (all ranks together)
    gpus: int = 0
    #: their accelerator ids from Ray; None while the lease is being made, then its tasks or ``grant`` tell them
    gpu_ids: list[str] | None = None
    simulated: bool = False
    ranks: int = 1
    memory_bytes: int = 0
    cpus: float | None = None
    timeout_s: float | None = None
    grace_s: float = 5.0
    fresh: bool = False
    gang: GangOrder = GangOrder()


class GpuInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU of a node as NVML (or the simulation) shows it."""

    index: str
    name: str = ""
    uuid: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    utilization: float | None = None
    simulated: bool = False


class NodeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node agent introduces itself; ``incarnation`` changes when the agent is started anew."""

    node: str
    host: str
    incarnation: str
    python: str
    version: str
    gpus: list[GpuInfo] = msgspec.field(default_factory=list)
    memory_bytes: int = 0
    cpus: int = 0
    simulated: bool = False
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    #: one-line findings (a library left the preload list, NVML missing …)
    notes: list[str] = msgspec.field(default_factory=list)
    #: why the node can carry out no run just now (the store is not there …); empty when it can
    trouble: str = ""
    #: a worker process of Ray is kept here for lease tasks
    has_lease_worker: bool = True


class RunEvents(msgspec.Struct, frozen=True, tag="events"):
    """Events of a run, recorded on the store already."""

    run: str
    events: list[Event]


class RunPhase(msgspec.Struct, frozen=True, tag="phase"):
    """``running``: the cell begins. ``ended``: last statement done. ``leaving`` (not always): the process ends now and
    has no device open, so that Ray can be asked to free its GPUs meanwhile. ``released``: all descendants gone, the
    lease may end; carries the outcome (values inline when small). ``final``: results durable; carries the
    complete outcome. A run that cannot start goes straight to ``released`` and ``final``.
    """

    run: str
    phase: str
    at_s: float
    outcome: Outcome | None = None


class RunWaits(msgspec.Struct, frozen=True, tag="waits"):
    """The results of a released run are not durable yet, and why."""

    run: str
    waits_for: PersistWait


class RunAsks(msgspec.Struct, frozen=True, tag="asks"):
    """A rank waits for a name that its kernel holds back."""

    run: str
    rank: int = 0


class RunUnbegun(msgspec.Struct, frozen=True, tag="unbegun"):
    """A gang over nodes lost processes before any of them began: its leader has forgotten it, so it can begin anew."""

    run: str
    reason: str


NodeMessage = RunEvents | RunPhase | RunWaits | RunAsks | RunUnbegun


class NodeReport(msgspec.Struct, frozen=True):
    """Messages of an agent to the gateway, in order; unacknowledged reports are sent again (idempotent)."""

    node: str
    incarnation: str
    messages: list[NodeMessage]


class NodeRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run as its agent knows it, for a gateway that was started anew."""

    run: str
    phase: str
    last_event: int = 0
    at_s: float = 0.0
    outcome: Outcome | None = None
    waits_for: PersistWait | None = None
