"""The stable, versioned documents for programs: ``jupyter gpu status --json`` and ``runs --json``."""

from __future__ import annotations

import msgspec

from ..units import sum_gpus
from .bounds import Gpus, Name, Seconds, Word
from .events import Event
from .node import PreparedInfo, ProbeReport
from .runs import FileInfo, Outcome, ResourceAsk, Run, RunView, ValueInfo

DOCUMENT_VERSION = 1


class GatewayFacts(msgspec.Struct, frozen=True):
    """The gateway itself."""

    url: str
    version: str
    up: bool = True
    #: ``PYTHONHASHSEED`` of the cells
    hash_seed: str = ""


class GpuCounts(msgspec.Struct, frozen=True):
    """``held``: by leases in any state; ``external``: taken in Ray by others than us; ``warm``: those of ``held`` on
    which nothing runs, since kernels keep them for their next cells.
    """

    total: int
    held: Gpus
    free: Gpus
    external: int
    warm: int = 0


class GpuPart(msgspec.Struct, frozen=True):
    """A run that has a part of a GPU."""

    run: str
    user: str
    gpus: Gpus


class GpuRow(msgspec.Struct, frozen=True):
    """One GPU: ``free``, ``running``, ``warm``, ``idle-kernel``, ``unattributed`` or ``drained`` (free)."""

    index: str
    uuid: str
    name: str
    memory_bytes: int
    used_bytes: int
    utilization: float | None
    state: str
    user: str | None = None
    #: that holds it; of a warm one: that it is kept after
    run: str | None = None
    #: what ``/v1/leases/{lease}/…`` takes
    lease: str | None = None
    #: when a warm one is given back (unix seconds)
    warm_until: float | None = None
    #: why it gets no new runs although its node does, in words; empty: it does
    drained: str = ""
    #: it gets none since it does not work, and nobody has drained it
    unwell: bool = False
    #: of one that is shared: whoever has a part of it; ``run`` and ``user`` are those of the first
    parts: list[GpuPart] = msgspec.field(default_factory=list)
    #: of a MIG instance: the number of the GPU that it is a slice of, on its machine
    slice_of: str = ""

    @property
    def holders(self) -> list[GpuPart]:
        """All who have it, or a part of it."""
        return self.parts or ([GpuPart(self.run, self.user or "", 1)] if self.run else [])


class NodeRow(msgspec.Struct, frozen=True):
    """One node with its GPUs; ``notes`` are one-line findings of its agent."""

    id: str
    host: str
    gpus: list[GpuRow]
    up: bool = True
    #: why it takes no new runs although it is up, in words; empty: it does
    drained: str = ""
    notes: list[str] = msgspec.field(default_factory=list)
    #: fork servers that have further libraries for users' cells, and their memory
    prepared: list[PreparedInfo] = msgspec.field(default_factory=list)
    #: memory of the fork servers of each environment that has one now
    environment_bytes: list[int] = msgspec.field(default_factory=list)


class NodesDocument(msgspec.Struct, frozen=True):
    """``nodes --json``."""

    schema_version: int
    nodes: list[NodeRow]


class RunError(msgspec.Struct, frozen=True):
    """The reason why a run did not succeed."""

    ename: str
    evalue: str
    code: str = ""
    hint: str = msgspec.field(default="", name="mend")


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of :class:`.Outcome` that lists show; decodes an outcome as well."""

    error: RunError | None = None
    results: list[ValueInfo] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    files: list[FileInfo] = msgspec.field(default_factory=list)
    metric: dict[str, float] = msgspec.field(default_factory=dict)


def summary_of(outcome: Outcome) -> Summary:
    """The summary of ``outcome`` that lists show."""
    error = outcome.error
    shown = None if error is None else RunError(error.ename, error.evalue, error.code, error.hint)
    return Summary(shown, outcome.results, outcome.notes, outcome.files, outcome.metric)


class RunRow(Run, frozen=True, omit_defaults=False):
    """A run in a list: of those that wait, of those that are not over, of all. Durations are seconds."""

    #: gateways of before do not say it of a run that waits
    state: str = "queued"
    #: from its submission to its first grant; with GPUs, in all its attempts
    queued_s: float = 0.0
    held_s: float = 0.0
    #: for so long it waits, or has the GPUs that it has now; of a run that is over: none
    since_s: float | None = None
    #: seconds until it starts, probably, at the earliest, at the latest; None: nobody knows
    start_estimate_s: float | None = None
    start_at_least_s: float | None = None
    start_at_most_s: float | None = None
    #: user whose run ends right before
    start_after: str = ""
    #: the last line of its output, progress bars folded, while it is not over
    progress: str = ""
    #: the kernel that submitted it is not connected now, so nothing there waits for it
    unattended: bool = False
    #: why a persisting run's results are not durable yet, in words
    waits_for: str = ""
    #: when the next try to write them begins (unix seconds), where one failed
    next_try_at: float | None = None
    #: of each attempt before this one: why it ended, what it cost, in words
    earlier: list[str] = msgspec.field(default_factory=list)
    results: list[ValueInfo] = msgspec.field(default_factory=list)
    files: list[FileInfo] = msgspec.field(default_factory=list)
    error: RunError | None = None
    notes: list[str] = msgspec.field(default_factory=list)
    #: of the GPU-hours that it has held, by the rates of the queues file; empty without rates, and in other lists
    price: str = ""
    #: of a trial of a sweep that went well: name of what is searched for → its value
    metric: dict[str, float] = msgspec.field(default_factory=dict)


class QueueUser(msgspec.Struct, frozen=True):
    """Somebody's part in a queue."""

    user: str
    used: float
    waiting_runs: int
    waiting_gpus: float


class TypeShare(msgspec.Struct, frozen=True):
    """A queue's part of the GPUs of one type, which its file names; None: nothing is said of it."""

    gpu_type: str
    guaranteed: float | None
    max: float | None
    used: float
    fair_share: float


class QueueShare(msgspec.Struct, frozen=True):
    """A queue; GPUs may be fractions, and those of queues below it count. Only leaves take runs."""

    name: str
    #: empty at the top
    parent: str
    depth: int
    leaf: bool
    #: may the caller use it
    usable: bool
    #: None: all that there are
    guaranteed: float | None
    max: float | None
    weight: float
    priority: int
    used: float
    #: its part when every queue asks for all that it may have
    fair_share: float
    waiting_runs: int
    waiting_gpus: float
    users: list[QueueUser] = msgspec.field(default_factory=list)
    #: the most that a run may ask for, None: no limit
    priority_ceiling: int = 75
    max_timeout_s: float | None = None
    max_keep_s: float | None = None
    max_gpus_per_user: float | None = None
    by_type: list[TypeShare] = msgspec.field(default_factory=list)


class QueuesDocument(msgspec.Struct, frozen=True):
    """``queues --json``: each queue behind the one above it."""

    schema_version: int
    #: GPUs of the cluster
    gpus: Gpus
    #: where the caller's runs go without ``--queue``; empty: nowhere
    default_queue: str
    queues: list[QueueShare]
    #: what whoever runs the cluster should know, such as a malformed queues file
    notes: list[str] = msgspec.field(default_factory=list)


class EstimateQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """``POST /v1/outlook``: when would a run start that asks for this."""

    ask: ResourceAsk = ResourceAsk()
    #: empty: the user's default queue
    queue: Word = ""
    priority: Word = "normal"
    timeout_s: Seconds | None = None
    keep_s: Seconds = 0.0
    keep_auto: bool = False
    #: runs of the same name, or of the same cell, tell how long it takes
    name: Name = ""
    notebook: Name = ""
    cell: Name = ""
    #: it may be preempted; None: as its queue says
    restartable: bool | None = None


class SoonerAsk(msgspec.Struct, frozen=True):
    """Options with which it would start sooner, and in how many seconds."""

    change: str
    starts_in_s: float


class EstimateDocument(msgspec.Struct, frozen=True):
    """The start of a run that waits, or would be sent now. Seconds from now; None: nobody knows.

    ``position``: in its queue, 0 when it would start at once. ``reason``: what it waits for, in words.
    """

    schema_version: int
    queue: str
    priority_value: int
    position: int
    reason: str
    starts_in_s: float | None = None
    at_least_s: float | None = None
    at_most_s: float | None = None
    #: user whose run ends right before
    after: str = ""
    sooner: list[SoonerAsk] = msgspec.field(default_factory=list)
    #: by the rates of the queues file, in words; empty: it names none
    price: str = ""


class Usage(msgspec.Struct, frozen=True):
    """GPU-seconds: ``held`` by leases, ``used`` of that by the gpus' measured use, ``saved`` by giving them back.

    ``saved``: what kernels with GPUs of their own would have kept beside (:mod:`.gateway.db.usage` has the definition).
    ``kept``: by warm leases, on which nothing ran; neither held nor saved.
    ``others``: how much of ``saved`` others used.
    """

    held_s: float = 0.0
    used_s: float = 0.0
    saved_s: float = 0.0
    kept_s: float = 0.0
    others_s: float = 0.0


class UsageDay(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPU-seconds of one day by the gateway's clock, of who asks and of all. ``since``: its beginning (unix seconds).

    ``capacity_s``: what the cluster's GPUs could have given until now, or until the day's end.
    """

    since: float
    own: Usage = Usage()
    all: Usage = Usage()
    capacity_s: float = 0.0


class UsageFacts(msgspec.Struct, frozen=True):
    """GPU-hours of who asks and of all, since midnight and in the last seven days; ``users``: for admins.

    ``stored_bytes``: what runs of who asks take of the store, as of some minutes ago (None: not looked yet).
    """

    today: Usage
    week: Usage
    all_today: Usage
    all_week: Usage
    #: user → the last seven days
    users: dict[str, Usage] = msgspec.field(default_factory=dict)
    #: the last seven days, today last
    days: list[UsageDay] = msgspec.field(default_factory=list)
    stored_bytes: int | None = None


class ReportRow(msgspec.Struct, frozen=True):
    """GPUs of one type that a user's runs have held. ``held_s``: GPU-seconds."""

    user: str
    #: empty: simulated
    gpu_type: str
    runs: int
    held_s: float
    #: by the rates of today
    price: float


class ReportDocument(msgspec.Struct, frozen=True):
    """``report --json``: GPU-seconds that were held from ``since`` to ``until`` (unix seconds)."""

    schema_version: int
    since: float
    until: float
    rows: list[ReportRow]
    #: unit of the prices; None: the queues file names no rates
    price_unit: str | None = None


class PriceList(msgspec.Struct, frozen=True):
    """Prices by the rates of the queues file. ``hourly``: type of GPU → price of an hour; empty: none is asked for."""

    hourly: dict[str, float]
    unit: str = ""
    #: the price of a run that is worth a word
    warn_above: float | None = None


class WarmRow(msgspec.Struct, frozen=True):
    """GPUs that a kernel keeps after ``run`` for its next cell, until ``until`` (unix seconds) at the latest."""

    lease: str
    run: str
    user: str
    gpus: Gpus
    #: since its run let go
    since: float
    until: float
    #: given back as soon as somebody waits for them
    auto: bool = False
    hosts: list[str] = msgspec.field(default_factory=list)
    gpu_ids: list[str] = msgspec.field(default_factory=list)
    queue: str = ""
    notebook: str = ""
    cell: str = ""
    #: Jupyter's id of the kernel, and the id of its session with the gateway
    kernel: str = ""
    session: str = ""
    #: ``warm``, or ``gone`` in the answer to its release
    state: str = "warm"


class LeaseExtension(msgspec.Struct, frozen=True):
    """``POST /v1/leases/{lease}/extend``: keep it for so many seconds from now."""

    keep_s: Seconds


class StatusDocument(msgspec.Struct, frozen=True):
    """``status --json``. ``user`` and ``role`` (``user``, ``admin``): who asked, by their token.

    ``serial`` names the latest change: ``GET /v1/status?after=SERIAL&wait_ms=20000`` answers at the next one.
    """

    schema_version: int
    simulated: bool
    gateway: GatewayFacts
    gpus: GpuCounts
    nodes: list[NodeRow]
    queue: list[RunRow]
    runs: list[RunRow]
    user: str = ""
    role: str = ""
    serial: str = ""
    usage: UsageFacts | None = None
    #: GPUs that are held though nothing runs on them
    warm: list[WarmRow] = msgspec.field(default_factory=list)
    #: runs that wait, and the GPUs that they want; ``queue`` (and ``runs``) may leave out others' far behind
    queue_total: int = 0
    queue_gpus: Gpus = 0
    #: as in ``queues --json``
    queues: list[QueueShare] = msgspec.field(default_factory=list)
    queue_notes: list[str] = msgspec.field(default_factory=list)
    default_queue: str = ""
    #: None: there are no rates
    prices: PriceList | None = None
    #: named environments that who asks is offered
    environments: list[str] = msgspec.field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Runs that wait, those that ``queue`` leaves out, too (a gateway of before leaves out none)."""
        return max(self.queue_total, len(self.queue))

    @property
    def waiting_gpus(self) -> float:
        """GPUs that they want."""
        return max(self.queue_gpus, sum_gpus(row.gpus for row in self.queue))

    def warm_of(self, session: str) -> list[WarmRow]:
        """The warm leases that a kernel keeps, by its session with the gateway."""
        return [row for row in self.warm if row.session == session]


def queued_s(view: RunView, now_s: float) -> float:
    """Seconds from submission to the first grant (or to the end, or until now)."""
    first = view.attempts[0].granted_at if view.attempts else view.granted_at
    return max(0.0, (first or view.finished_at or now_s) - view.submitted_at)


def held_s(view: RunView, now_s: float) -> float:
    """Seconds from grants to leases gone (or until now); 0 for a run that held nothing."""
    before_s = sum(max(0.0, past.gone_at - past.granted_at) for past in view.attempts)
    if view.granted_at is None:
        return before_s
    return before_s + max(0.0, (view.gone_at or view.finished_at or now_s) - view.granted_at)


def since_s(view: RunView, now_s: float) -> float | None:
    """Seconds for which it waits, or has the GPUs that it has now; none: it has let go of them."""
    if view.finished_at is not None or view.gone_at is not None:
        return None
    began = view.attempts[-1].gone_at if view.attempts else view.submitted_at
    return max(0.0, now_s - (began if view.granted_at is None else view.granted_at))


class RunsDocument(msgspec.Struct, frozen=True):
    """``runs --json``, newest first. ``stored_bytes``: as in :class:`UsageFacts`."""

    schema_version: int
    runs: list[RunRow]
    stored_bytes: int | None = None


class Health(msgspec.Struct, frozen=True):
    """Health of the gateway: ``ready`` to take runs once recovery is over and a node agent is up."""

    ready: bool
    version: str
    protocol: int
    cluster: str
    pid: int
    nodes: int
    agents: int
    gpus_total: int
    simulated: bool
    problems: list[str] = msgspec.field(default_factory=list)
    #: root of the store as the nodes see it
    store: str = ""
    #: what ``store.json`` in it says
    store_id: str = ""
    #: user that the cluster's agents run as, where that is to be trusted; None: it does not matter
    service_uid: int | None = None
    #: whether Ray on the head keeps what it knows on disk, so that nodes and runs outlive a head that is lost
    remembers_head: bool = False


class NodeCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """Findings of a look at one node; a problem that is empty is none."""

    host: str
    agent_problem: str = ""
    store_problem: str = ""
    python: str = ""
    version: str = ""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    #: how far its clock is before the gateway's, in seconds; negative: behind
    clock_ahead_s: float = 0.0
    #: the ways to the other nodes, frameworks and driver; None: its agent is of an older version
    probe: ProbeReport | None = None


class FileTrouble(msgspec.Struct, frozen=True):
    """A file that cannot be read, or is malformed: the last good version of it holds. ``mend``: what to do."""

    problem: str
    mend: str = ""


class NodeChecks(msgspec.Struct, frozen=True):
    """The nodes as ``jupyter gpu doctor`` asks for them. ``store``: its root as the nodes see it.

    ``now_s``: the gateway's clock (unix seconds); 0: it does not tell.
    """

    schema_version: int
    store: str
    nodes: list[NodeCheck]
    now_s: float = 0.0
    #: files of the operator that do not hold as they are now
    files: list[FileTrouble] = msgspec.field(default_factory=list)


class EventsPage(msgspec.Struct, frozen=True):
    """Recorded events above ``after``. ``more``: ask again with ``after=last``."""

    run: str
    state: str
    last: int
    more: bool
    events: list[Event]


class NotifyChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of how one is told of one's detached runs. What is None stays; empty text: no longer by this way."""

    email: Word | None = None
    webhook: Name | None = None
    #: when one has started after waiting
    starts: bool | None = None
    #: when one has ended
    ends: bool | None = None
    #: when one was preempted or lost, and goes on later
    pauses: bool | None = None

    def __repr__(self) -> str:
        """Without the webhook, whose address is a secret: records are shown in error messages and debuggers."""
        return f"NotifyChange(email={self.email!r}, starts={self.starts}, pauses={self.pauses}, ends={self.ends})"


class NotifyDelivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """The latest try to tell by one way (``mail`` or ``webhook``). ``error``: why it failed; empty: it did not."""

    channel: str
    at: float
    run: str = ""
    error: str = ""


class NotifyDocument(msgspec.Struct, frozen=True):
    """``notify --json``: how one is told of one's detached runs, and what this cluster offers.

    ``webhook``: its host alone. ``mail_from``: empty where the cluster sends no mail.
    """

    schema_version: int
    user: str
    email: str
    webhook: str
    starts: bool
    ends: bool
    mail_from: str
    webhook_hosts: list[str]
    deliveries: list[NotifyDelivery]
    pauses: bool = True
