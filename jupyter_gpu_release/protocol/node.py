"""Calls and messages between the gateway and the node agents.

:class:`NodeAgentApi` is what the gateway may call, :class:`GatewayApi` what the agents may call. The records are as in
:mod:`.protocol.runs`: the gateway gives a :class:`StartOrder` to a node agent, which hands it to its ranks, and gets
:class:`NodeReport`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from ..settings.table import CLUSTER
from .bounds import Number
from .config import DEFAULT_HASH_SEED, UnixUser
from .environments import BuildReport, ClusterPackages, EnvironmentRow, PackagesAnswer, Plan, Question, Versions
from .events import Event
from .lineage import Environment
from .runs import Outcome, PersistWait, Save
from .wire import Packed

#: protocol between gateway and agents, as :class:`NodeInfo` states it. 1: calls and messages name the attempt
AGENT_PROTOCOL = 1


class AttemptId(msgspec.Struct, frozen=True, array_like=True):
    """One try at a run. ``attempt``: how often the run was begun before; 0 is the first."""

    run: str
    attempt: int

    def __str__(self) -> str:
        """Return a name for files, folders and placement groups: the run's id, of a later attempt with its number."""
        return f"{self.run}.{self.attempt}" if self.attempt else self.run

    @classmethod
    def named(cls, name: str) -> AttemptId:
        """The attempt whose ``str`` this is."""
        run, _, attempt = name.partition(".")
        return cls(run, int(attempt) if attempt.isdecimal() else 0)

    def is_before(self, other: AttemptId) -> bool:
        """Tell if it is an older attempt of the same run."""
        return self.run == other.run and self.attempt < other.attempt


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
    #: cells run as their owners, who have stores of their own
    as_owners: bool = False
    #: fork servers that are kept with more libraries than the usual ones; 0: none
    max_prepared: int = CLUSTER["max_prepared"].default
    #: folder for environments, and where their packages come from; as in :class:`.GatewayConfig`
    environments: str = ""
    environment_index: str = ""
    environment_wheels: list[str] = msgspec.field(default_factory=list)
    environment_source_builds: str = CLUSTER["environment_source_builds"].default
    environment_timeout_s: float = CLUSTER["environment_timeout_s"].default
    environment_retention_s: float = CLUSTER["environment_retention_s"].default
    max_environments: int = CLUSTER["max_environments"].default


def grant_socket(runtime: str, node: str) -> str:
    """Path of the Unix datagram socket on which a node's agent hears from the lease tasks on its node."""
    return f"{runtime}/grants-{node[:12]}.sock"


def lease_worker_socket(runtime: str, node: str) -> str:
    """Path of the Unix stream socket by which a node's agent holds on to the worker that runs lease tasks there."""
    return f"{runtime}/worker-{node[:12]}.sock"


def early_server_path(runtime: str, node: str) -> str:
    """Path, but for its ending, of the files of the fork server that is started before its node's agent."""
    return f"{runtime}/early-{node[:12]}"


class ForkServerConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Orders for a fork server: JSON in one argument (it holds no secret)."""

    #: process that it ends with
    parent_pid: int
    preload: list[str]
    exclude: list[str] = msgspec.field(default_factory=list)
    #: earlier fork servers did not survive these
    fatal: list[str] = msgspec.field(default_factory=list)
    #: descriptors that its agent has made: where pairs are asked for, and the line to it
    listen_fd: int = -1
    line_fd: int = -1
    #: there is no agent yet: it makes its sockets at this path (:func:`early_server_path`) and is the agent's who comes
    early: str = ""
    #: its cells become their owners
    as_owners: bool = False


class ForkServerStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fork server's word on how far it is: one line of JSON. The process may be a user's."""

    #: library that it imports just now
    importing: str = ""
    #: of one that was forked from another
    pid: Number = 0
    #: it takes orders; what follows is said with it. ``bytes``: memory of its own
    ready: bool = False
    notes: list[str] = msgspec.field(default_factory=list)
    modules: list[str] = msgspec.field(default_factory=list)
    seconds: float = 0.0
    bytes: Number = 0
    #: libraries that ask for their rank when they are imported
    ask_for_rank: list[str] = msgspec.field(default_factory=list)
    #: libraries that cannot be imported ahead, and why: it ends
    unfit: dict[str, str] = msgspec.field(default_factory=dict)


class PrepareOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Have these modules imported in a fork of a fork server. Gateway to agent, and agent to fork server.

    ``user`` and ``session``: for whose cells; what the user's cells were seen to import comes with it. The server goes
    when no session is left that asked for it.
    """

    names: list[str]
    user: str = ""
    session: str = ""


class PreparedInfo(msgspec.Struct, frozen=True):
    """A prepared fork server: the libraries that it has beyond those that every cell finds, and their memory."""

    libraries: list[str]
    bytes: int


def calls_socket(runtime: str, node: str) -> str:
    """Path of the Unix stream socket by which a node's agent and a gateway on the same host call each other."""
    return f"{runtime}/calls-{node[:12]}.sock"


class GrantNotice(msgspec.Struct, frozen=True):
    """A lease task to the agent of its node: the accelerator ids that Ray gave the attempt."""

    attempt_id: AttemptId
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
    #: it may have another size the next time
    is_elastic: bool = False


class JoinOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lend ranks of this node to a gang that another node leads."""

    run: str
    node: str
    ranks: int
    gpus: float
    #: where the leader's agent listens
    address: str
    port: int
    secret: str
    gpu_ids: list[str] | None = None
    fresh: bool = False
    attempt: int = 0
    #: modules that its cell may import
    needs: list[str] = msgspec.field(default_factory=list)
    #: as in :class:`StartOrder`
    environment: str = ""
    #: Unix user as whom the environment's fork server runs, where cells run as their owners
    owner: UnixUser | None = None

    @property
    def attempt_id(self) -> AttemptId:
        """The attempt of whose gang the ranks are."""
        return AttemptId(self.run, self.attempt)


class GatewayAccess(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the driver of a sweep sends its trials. It is in memory only; the token is good for that sweep alone."""

    url: str
    token: str
    sweep: str
    #: PEM of the gateway's own certificate; empty: it has none
    certificate: str = ""

    def __repr__(self) -> str:
        return f"GatewayAccess({self.url!r}, sweep={self.sweep!r})"


class StartOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Start the ranks of a run on one node; it leads the ranks of the gang's other nodes, if there are any."""

    run: str
    payload: bytes
    #: the run's folder on the store, as this node sees it
    folder: str
    #: how many GPUs on this node (all ranks together)
    gpus: float = 0
    #: of a part of one: its memory; 0: not known
    part_bytes: int = 0
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
    #: 0 is the first; the node ends the processes of earlier ones before it takes the order
    attempt: int = 0
    restartable: bool = False
    #: seconds from the notice to the end, if it is preempted
    preempt_grace_s: float = 60.0
    #: state to go on from; None: from the beginning
    save: Save | None = None
    #: number of the last event of earlier attempts
    after_event: int = 0
    #: earlier attempts, if any, came to nothing before the cell began
    is_unbegun: bool = False
    #: Unix user of the run's owner, where that matters
    owner: UnixUser | None = None
    #: its cell runs as that user
    as_owner: bool = False
    #: modules that its cell may import, and for whose session
    needs: list[str] = msgspec.field(default_factory=list)
    user: str = ""
    session: str = ""
    #: digest of the environment, built here, whose interpreter the ranks run in; empty: the cluster's own
    environment: str = ""
    #: of the driver of a sweep
    access: GatewayAccess | None = None

    @property
    def has_owners_server(self) -> bool:
        """Tell if its ranks are forked from a process that is its owner's already."""
        return self.as_owner and bool(self.environment)

    @property
    def is_part(self) -> bool:
        """Tell if it is a part of a GPU, which it shares with other runs."""
        return 0 < self.gpus < 1

    @property
    def attempt_id(self) -> AttemptId:
        """The attempt that is to be started."""
        return AttemptId(self.run, self.attempt)


class GpuInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU of a node as NVML (or the simulation) shows it."""

    index: str
    name: str = ""
    uuid: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    utilization: float | None = None
    simulated: bool = False
    #: why it should get no runs (lost, errors of its memory …); empty: it is well, as far as it tells
    trouble: str = ""
    #: the driver has not said anything of it yet
    is_unread: bool = False
    #: of a MIG instance: the number of its GPU on this machine
    slice_of: str = ""


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
    #: the node's clock when it answered (unix seconds); 0: it does not tell
    now_s: float = 0.0
    #: see :data:`AGENT_PROTOCOL`; 0: the agent is from before `start --upgrade`, and knows runs without attempts
    protocol: int = 0
    #: prepared fork servers, how many are kept at most (0: it prepares nothing), and how many have gone so far
    prepared: list[PreparedInfo] = msgspec.field(default_factory=list)
    max_prepared: int = 0
    prepared_gone: int = 0
    #: digest of what is installed here; empty: it is not known, or the node builds no environments
    packages: str = ""
    #: memory of the fork servers of each environment that has one now
    environment_bytes: list[int] = msgspec.field(default_factory=list)


class PortTry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port of ``host`` (by its ``address``), what listens there, and what came of connecting to it.

    ``answer``: ``open``, ``refused`` (the host answers that nothing listens), ``silent`` (no answer in time, as when a
    firewall drops what it gets) or ``unreachable`` (there is no way there, as ``reason`` says); empty: not tried yet.
    """

    host: str
    address: str
    port: int
    what: str
    answer: str = ""
    reason: str = ""


class NameLookup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The addresses that a host's ``name`` stands for. ``address``: where the host is reached; ``problem``: why none is
    known.
    """

    name: str
    address: str
    found: list[str] = msgspec.field(default_factory=list)
    problem: str = ""


class PythonTry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Python that the operator offers beside the cluster's, as one node has it. ``version``: empty where it has none.

    ``interpreter``: as the operator wrote it. ``problem``: why there is none, ``mend``: what to do about it.
    """

    interpreter: str
    version: str = ""
    problem: str = ""
    mend: str = ""


class ProbeOrder(msgspec.Struct, frozen=True):
    """Ports that a node has to reach, and names that it should know.

    ``pythons``: others that it should have. ``owned``: names of packages that the operator owns beside GPU libraries.
    """

    ports: list[PortTry] = msgspec.field(default_factory=list)
    names: list[NameLookup] = msgspec.field(default_factory=list)
    pythons: list[str] = msgspec.field(default_factory=list)
    owned: list[str] = msgspec.field(default_factory=list)


class ProbeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The same, tried; and what the node's driver and frameworks are. CUDA versions are written ``12.8``."""

    ports: list[PortTry] = msgspec.field(default_factory=list)
    names: list[NameLookup] = msgspec.field(default_factory=list)
    #: frameworks with the CUDA that they were built for; empty: a build without
    frameworks: dict[str, str] = msgspec.field(default_factory=dict)
    #: the highest CUDA version of the node's driver; empty: no driver
    driver_cuda: str = ""
    #: what ``store.json`` says at the store's path there; empty: there is none; None: it was not looked at
    store_id: str | None = None
    #: what ``/dev/shm`` holds there, the memory that data loaders share; None: it was not looked at
    shared_bytes: int | None = None
    #: files that a process of a cell may have open, by ``ulimit -n``; None: it was not looked at
    open_files: int | None = None
    #: processes and threads that there may be at a time, by ``ulimit -u`` and cgroups; None: as many as they like
    processes: int | None = None
    #: why no environment can be built there, and what to do about it; empty: one can be; None: none is to be
    environments_problem: str | None = None
    pythons: list[PythonTry] = msgspec.field(default_factory=list)
    #: the cluster's own packages that have to fit the GPUs: name → version
    owned: dict[str, str] = msgspec.field(default_factory=dict)


class RunEvents(msgspec.Struct, frozen=True, tag="events"):
    """Events of a run, recorded on the store already."""

    attempt_id: AttemptId
    events: list[Event]


class RunPhase(msgspec.Struct, frozen=True, tag="phase"):
    """``running``: the cell begins. ``ended``: last statement done. ``released``: all descendants gone (or nothing
    but a process that has closed its files, holds no device and ends), the lease may end; carries the outcome (values
    inline when small). ``final``: results durable; carries the complete outcome. A run that cannot start goes straight
    to ``released`` and ``final``.
    """

    attempt_id: AttemptId
    phase: str
    at_s: float
    outcome: Outcome | None = None


class RunWaits(msgspec.Struct, frozen=True, tag="waits"):
    """The results of a released run are not durable yet, and why."""

    attempt_id: AttemptId
    waits_for: PersistWait


class RunAsks(msgspec.Struct, frozen=True, tag="asks"):
    """A rank waits for a name that its kernel holds back."""

    attempt_id: AttemptId
    rank: int = 0


class RunUnbegun(msgspec.Struct, frozen=True, tag="unbegun"):
    """A gang over nodes lost processes before any of them began: its leader has forgotten it, so it can begin anew."""

    attempt_id: AttemptId
    reason: str


class RunSaved(msgspec.Struct, frozen=True, tag="saved"):
    """A run that goes on was saved: the save is durable, and the earlier ones may go."""

    attempt_id: AttemptId
    save: Save


class RunStays(msgspec.Struct, frozen=True, omit_defaults=True, tag="stays"):
    """A run will not be preempted, and why: it cannot be saved (just now: ``for_now``), or has no safe point left.

    ``of_size``: it will, and goes on with as many ranks as it has only.
    """

    attempt_id: AttemptId
    reason: str
    for_now: bool = False
    of_size: bool = False


NodeMessage = RunEvents | RunPhase | RunWaits | RunAsks | RunUnbegun | RunSaved | RunStays


class NodeReport(msgspec.Struct, frozen=True):
    """Messages of an agent to the gateway, in order; unacknowledged reports are sent again (idempotent)."""

    node: str
    incarnation: str
    messages: list[NodeMessage]


class NodeRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt as its agent knows it. ``save``: its latest, if its commit may not have been heard.

    Its phase is ``ordered`` before its GPUs are known: it may be told of them, and begin, at any moment.
    """

    attempt_id: AttemptId
    phase: str
    last_event: int = 0
    at_s: float = 0.0
    outcome: Outcome | None = None
    waits_for: PersistWait | None = None
    save: Save | None = None
    #: ranks that the node lends to a gang that another one leads
    is_lent: bool = False

    @property
    def is_granted(self) -> bool:
        """Tell if the node leads it, and knows its GPUs."""
        return not self.is_lent and self.phase != "ordered"

    @property
    def holds_gpus(self) -> bool:
        """Tell if processes may use its GPUs, still or soon."""
        return self.phase not in ("released", "final")


class NodeAgentApi(ABC):
    """Calls of the gateway to the agent of one node, which is a detached Ray actor.

    The gateway calls through ``gateway/cluster/agent_client.py``, on its event loop, and limits each wait itself. Here
    each method runs on the agent's event loop, beside the others: between two ``await`` it has the agent's state for
    itself, and it never blocks the loop (files are read, drivers asked and packages looked up in threads). *Waits*
    tells for what a method may keep its caller waiting; where there is no such line it answers at once.

    What is said of a run is said of one attempt at it (:class:`AttemptId`), and touches no other.
    A gateway that was restarted calls again what it does not know to have been heard, so each method may be called
    twice. Attempts that the agent does not know (any more) have ended, or were never ordered here: a method does
    nothing about them unless it says otherwise. What a method raises reaches the gateway as :class:`.ClusterError`, as
    does an agent that is dead or silent. Records travel as msgpack (:class:`.Packed`).
    """

    # ------------------------------------------------------------------------------------- a run's beginning
    @abstractmethod
    async def start(self, order: Packed[StartOrder]) -> None:
        """Take an order: ranks get ready at once, the cell begins when the run's accelerators are known.

        Called by
            the start of a granted run (``gateway/dispatch/start.py``), for the first node of its lease, while Ray
            still makes that lease.
        Waits
            for older attempts at the run, which it ends, until none of their processes is left.

        Raises
        ------
        ClusterError
            An older attempt does not end, or a later one is here already.
        """

    @abstractmethod
    async def grant(self, attempt_id: Packed[AttemptId], gpu_ids: list[str]) -> None:
        """Say which accelerators a run has on this node; nothing happens when they are known already.

        Called by
            the start of a run, once Ray has granted the lease: most agents know by then, from their lease task.

        Raises
        ------
        ClusterError
            The run is not known here: the agent was started anew after it took the order.
        """

    @abstractmethod
    async def abandon(self, attempt_id: Packed[AttemptId]) -> None:
        """Forget an attempt that nobody wants; one that may have begun is killed, and its results are dropped.

        Called by
            a start that failed, and whoever finds here, or hears of, what is over; nobody waits for the answer.
        """

    @abstractmethod
    async def forget_unbegun(self, attempt_id: Packed[AttemptId]) -> bool:
        """Forget a run that no process has been told to begin. False: it may have begun, or is not known.

        Called by
            recovery, to start anew what the gateway's earlier life had granted.
        """

    @abstractmethod
    async def has_begun(self, attempt_id: Packed[AttemptId]) -> bool:
        """Tell if a run was granted here, or began in an earlier life of this agent (whose processes are gone).

        Called by
            a start that failed, and recovery: a cell that may have begun is not begun again.
        """

    # ------------------------------------------------------------------------------------ gangs over nodes
    @abstractmethod
    async def open_rank_listener(self) -> tuple[str, int]:
        """Address and port at which other nodes lend their ranks to gangs that this one leads.

        Called by
            the start of a gang over several nodes, before any order.
        """

    @abstractmethod
    async def start_remote_ranks(self, order: Packed[JoinOrder]) -> None:
        """Lend ranks of this node to a gang that another node leads.

        Called by
            the start of a gang, for each node but its first.
        Waits
            for ranks that were lent to the same gang before, and for older attempts, as :meth:`start` does.
        """

    @abstractmethod
    async def has_remote_ranks(self, attempt_id: Packed[AttemptId]) -> bool:
        """Tell if ranks of this node are lent to a gang.

        Called by
            the look at nodes, when an agent has been restarted.
        """

    @abstractmethod
    async def end_remote_ranks(self, attempt_id: Packed[AttemptId]) -> None:
        """End the ranks of an attempt that is over, lent or led. (An agent of an earlier version ends what it lends.)

        Called by
            the end of a lease, before its GPUs are anybody else's: at nodes that lend ranks, and at the leader when it
            has not said itself that it is over.
        Waits
            until none of these ranks is left.
        """

    @abstractmethod
    async def lose_member(self, attempt_id: Packed[AttemptId], node: str) -> None:
        """Hear that ``node``, which lends ranks to a gang that is led here, is gone.

        Called by
            the look at nodes: the connection of a node that lost its power does not tell it.
        """

    # --------------------------------------------------------------------------------------- while it runs
    @abstractmethod
    async def signal(self, attempt_id: Packed[AttemptId], name: str, reason: str = "interrupted") -> None:
        """``interrupt`` or ``kill`` a run; ``reason`` is what its outcome says if that ends it.

        Called by
            whoever cancels a run, and the comparison with the nodes for what is over and still runs.
        """

    @abstractmethod
    async def step_aside(self, attempt_id: Packed[AttemptId]) -> bool:
        """Have a restartable run stop at its next safe point, save itself and end. False: it cannot (any more).

        Its outcome is ``preempted`` then, or :class:`RunStays` says why it goes on after all. How long that may take
        is the gateway's to say: it kills the run when its grace is over.

        Called by
            whoever has a run preempted; again by a gateway that was restarted meanwhile.
        """

    @abstractmethod
    async def answer_rank(self, attempt_id: Packed[AttemptId], rank: int, body: bytes) -> None:
        """Pass the kernel's answer (an encoded :class:`.Answer`) on to a rank that has asked for a name.

        Called by
            ``gateway/dispatch/name_requests.py``, for each :class:`RunAsks`.
        """

    @abstractmethod
    async def runs(self) -> Packed[list[NodeRun]]:
        """All attempts that are not forgotten yet, those that wait for their GPUs, and those to which ranks are lent.

        Called by
            recovery, the look at nodes, and the comparison with them.
        """

    @abstractmethod
    async def events(self, attempt_id: Packed[AttemptId], after: int) -> Packed[list[Event]]:
        """The recorded events of a run with numbers above ``after``; none of a run that is not known.

        Called by
            a client's subscription to output that the gateway has not in memory.
        Waits
            for the store, in a thread.
        """

    # --------------------------------------------------------------------------------------- after it ended
    @abstractmethod
    async def forget_runs(self, attempt_ids: Packed[list[AttemptId]]) -> None:
        """Forget runs whose end is committed, once their results are durable, and that they have begun.

        Called by
            the gateway every few seconds.
        """

    @abstractmethod
    async def give_up_results(self, attempt_id: Packed[AttemptId], reason: str) -> bool:
        """Drop a run's results that are not durable yet. False: there are none.

        Called by
            a cancellation of a run that is persisting.
        """

    @abstractmethod
    async def keep_results(self, attempt_id: Packed[AttemptId], folder: str, outcome: Packed[Outcome]) -> None:
        """Make small results durable that the gateway has, and an earlier agent did not come to write.

        Called by
            the look at nodes, when an agent has been restarted.
        """

    # ------------------------------------------------------------------------------------------- the node
    @abstractmethod
    async def hello(self) -> Packed[NodeInfo]:
        """Facts about this node, and which life of its agent this is.

        Called by
            the look at nodes every few seconds, and recovery.
        """

    @abstractmethod
    async def gpus(self) -> Packed[list[GpuInfo]]:
        """The GPUs with their memory and utilisation now; of a driver that is silent the last reading.

        Called by
            the status, at most twice a second.
        Waits
            for the driver, in a thread, 1.5 s at most.
        """

    @abstractmethod
    async def missing_imports(self, names: list[str]) -> list[str]:
        """The top-level packages of ``names`` that are not installed here.

        Called by
            a submission, before it is queued.
        """

    @abstractmethod
    async def prepare(self, order: Packed[PrepareOrder]) -> None:
        """Have modules imported before a cell that needs them has its GPUs; what cannot be is imported by that cell.

        Called by
            a submission, before it is queued; only of agents that keep prepared servers (``NodeInfo.max_prepared``).
        Waits
            for the imports, two minutes at most.
        """

    @abstractmethod
    async def end_session(self, session: str) -> None:
        """A kernel has ended: let go of what was prepared for it alone.

        Called by
            the end of a session, of the same agents.
        """

    @abstractmethod
    async def environment(self, imports: list[str]) -> Packed[Environment]:
        """The packages that these imports mean here, with what they require.

        Called by
            a submission with ``--cache``, and the record of each run that has ended.
        Waits
            for the packages' metadata to be read, in a thread.
        """

    @abstractmethod
    async def installed_packages(self, pythons: list[str]) -> Packed[ClusterPackages]:
        """Packages that are installed here, and in other Pythons, which the operator has named.

        Called by
            a kernel's question, once for each state of its own packages.
        Waits
            for the packages' metadata to be read, in a thread; for the installer, a minute at most, to fetch a Python.
        """

    @abstractmethod
    async def check_environment(self, plan: Packed[Plan]) -> Packed[PackagesAnswer]:
        """Tell if the packages of an environment can be had here; nothing is built.

        Called by
            a kernel's question, once for each environment.
        Waits
            for the index, a minute at most.
        """

    @abstractmethod
    async def resolve_packages(self, question: Packed[Question]) -> Packed[Versions]:
        """Find versions of packages for an environment.

        Called by
            a kernel's question, for ``--pip``, and where neither side has a version that goes with the rest.
        Waits
            for the index, a minute at most.
        """

    @abstractmethod
    async def build_environment(
        self, plan: Packed[Plan], wheels: list[bytes], owner: Packed[UnixUser] | None = None
    ) -> Packed[BuildReport]:
        """Build an environment if it is not there, and start its fork server. Who asks for the same shares the build.

        ``owner``: Unix user whose cells run in it, where they run as their owners: the fork server is that user's.

        Called by
            a submission, before it is queued; and the start of a run on a node that has lost it, or is new.
        Waits
            for the build, ``environment_timeout_s`` at most.
        """

    @abstractmethod
    async def list_environments(self) -> Packed[list[EnvironmentRow]]:
        """List the environments that are ready here.

        Called by
            ``jupyter gpu environments``.
        Waits
            for the disk, in a thread.
        """

    @abstractmethod
    async def remove_environment(self, digest: str) -> bool:
        """Remove an environment; False: it is in use, or not here.

        Called by
            ``jupyter gpu environments remove``.
        Waits
            for the disk, in a thread.
        """

    @abstractmethod
    async def count_fetched(self, plan: Packed[Plan]) -> int:
        """Count the packages of an environment that the installer has fetched here.

        Called by
            the wait of a run for its environment, every second.
        Waits
            for a look at the installer's cache, in a thread.
        """

    @abstractmethod
    async def stop_build(self, digest: str) -> None:
        """End the build of an environment that nobody waits for any more; nothing of it is left.

        Called by
            the end of the last run that waits for it.
        """

    @abstractmethod
    async def probe_store(self, path: str) -> str:
        """Write and read the store from this node: empty when well, else the error.

        Called by
            ``jupyter gpu doctor``.
        Waits
            for the store, in a thread.
        """

    @abstractmethod
    async def probe_node(self, order: Packed[ProbeOrder]) -> Packed[ProbeReport]:
        """Try ports and names of the other nodes from this one; say what its frameworks and its driver are.

        Called by
            ``jupyter gpu doctor``.
        Waits
            for the network, 10 s at most, and in a thread for names and packages.
        """


class GatewayApi(ABC):
    """Calls of the node agents to the gateway, which is a detached Ray actor. After `start --upgrade` Ray
    knows the methods of the version before: what is new goes into their records.

    Each runs on the gateway's event loop and waits until a gateway that is starting knows what its earlier life did.
    An agent repeats a call until it was answered (``node/agent/recorder.py``), so it may be heard twice.
    """

    @abstractmethod
    async def node_up(self, info: Packed[NodeInfo]) -> None:
        """An agent introduces itself; a new incarnation means that its earlier runs are gone.

        Called by
            an agent once its libraries are imported and it can start cells, or knows why it cannot.
        Waits
            until the agent can be called through Ray.

        Raises
        ------
        ClusterError
            The agent cannot be called: it is to say it again.
        """

    @abstractmethod
    async def node_report(self, report: Packed[NodeReport]) -> None:
        """Take in events and phases of runs.

        Called by
            an agent's reporter, one call at a time, so that messages stay in order.
        """
