"""JSON models of the extension."""

from __future__ import annotations

from typing import Any

import msgspec

from ..options.definitions import OPTIONS
from ..protocol.lineage import Environment, Link, RunSummary, TrackedFile, UsedInput
from ..protocol.rest import PriceList, RunRow, StatusDocument, UsageFacts
from ..protocol.runs import FileInfo, GpuUse

DOCUMENT_VERSION = 1


class Problem(msgspec.Struct, frozen=True):
    """Something that is missing or broken, and what a person can do about it."""

    what: str
    message: str
    hint: str = msgspec.field(default="", name="mend")


class GatewayState(msgspec.Struct, frozen=True):
    """The server's line to the gateway. ``state``: ``connected``, ``none`` (no gateway is named or runs here),
    ``unreachable`` or ``refused`` (a wrong token, a damaged file: trying again cannot help by itself).
    """

    state: str
    url: str = ""
    message: str = ""
    hint: str = msgspec.field(default="", name="mend")
    #: seconds that the last answer took
    latency_s: float | None = None
    #: seconds since the last answer; None: there was none
    age_s: float | None = None
    #: seconds until the next try
    next_try_s: float = 0.0


class ClusterStart(msgspec.Struct, frozen=True):
    """The start of this machine's own cluster through this server, while there is none. ``state``: ``possible``,
    ``starting``, ``failed`` (``message`` and ``mend`` say why) or ``refused`` (it is not for this server to start one).
    """

    state: str
    #: what it is at: "starting Ray with 4 simulated GPUs"
    step: str = ""
    elapsed_s: float = 0.0
    message: str = ""
    hint: str = msgspec.field(default="", name="mend")


class MigInstance(msgspec.Struct, frozen=True):
    """A slice of a GPU (MIG)."""

    index: int
    uuid: str
    memory_bytes: int
    used_bytes: int
    #: the GPU's, with the instance's type: ``H100 MIG 1g.10gb``
    name: str = ""
    unattributed_bytes: int = 0


class LocalGpu(msgspec.Struct, frozen=True):
    """A GPU of this machine. None: the driver does not tell. Watts, degrees Celsius, a share from 0 to 1."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    used_bytes: int
    utilization: float | None
    temperature_c: float | None
    power_w: float | None
    unattributed_bytes: int
    mig: list[MigInstance] = msgspec.field(default_factory=list)
    problem: str = ""


class KernelGpu(msgspec.Struct, frozen=True):
    """The memory of one GPU, or MIG instance, that a kernel's processes hold; None: the driver does not tell it."""

    index: int
    uuid: str
    used_bytes: int | None
    pids: list[int]


class KernelRow(msgspec.Struct, frozen=True):
    """One kernel of this server: what it holds, whether it is busy and why, what the policy means to do."""

    id: str
    name: str
    path: str
    connections: int
    used_bytes: int
    gpus: list[KernelGpu]
    busy: bool
    why: str
    idle_s: float | None
    decision: str
    reason: str
    #: seconds until the decision is carried out; None: nothing is due
    due_s: float | None = None
    kept_s: float | None = None
    suspended: bool = False


class KernelsDocument(msgspec.Struct, frozen=True):
    """``GET kernels``."""

    schema_version: int
    gpus: list[LocalGpu]
    kernels: list[KernelRow]
    problems: list[Problem] = msgspec.field(default_factory=list)


class CellRun(msgspec.Struct, frozen=True):
    """The newest run of a cell. ``ended_at``: when its output was whole (unix seconds); None: it goes on."""

    cell: str
    run: str
    state: str
    submitted_at: float
    ended_at: float | None


class CellRuns(msgspec.Struct, frozen=True):
    """``GET cells``: the newest run of each cell of a notebook. ``now``: this server's clock."""

    schema_version: int
    now: float
    cells: list[CellRun]


class OutputMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of ``WS runs/<id>/output``. ``changes``: ``{"op": "add", "output"}``, ``{"op": "set", "index",
    "output"}``, ``{"op": "clear"}``; a stream's text that is added goes on in the stream of that name before it.
    """

    changes: list[dict[str, Any]] = msgspec.field(default_factory=list)
    #: more will come
    live: bool = False
    #: it is the output of a run of who asks, made on this cluster: it may be trusted
    mine: bool = False
    #: why nothing comes for now
    problem: str = ""
    #: why nothing will come
    gone: str = ""


class RunPage(msgspec.Struct, frozen=True):
    """``GET runs/<id>``: all of one run. Times are unix seconds by the cluster's clock, ``now`` by this server's."""

    schema_version: int
    now: float
    run: RunRow
    #: the run is that of who asks
    mine: bool
    code: str
    #: options of ``%%gpu_train`` by name, as they are written
    options: dict[str, str]
    #: when the cell's first statement began, and its last one ended
    started_at: float | None
    ended_at: float | None
    gpu_use: GpuUse | None
    inputs: list[UsedInput]
    tracked: list[TrackedFile]
    #: runs that it was made from, and that were made from it
    runs: list[RunSummary]
    links: list[Link]
    #: how often its results were bound again
    reused: int
    #: files of its ``run_dir`` that can be fetched from ``runs/<id>/files/…``
    files: list[FileInfo]
    environment: Environment
    #: False: there is no cluster, and this is what the store has
    is_cluster_known: bool
    #: of a sweep, in the order in which they began
    trials: list[RunRow] = msgspec.field(default_factory=list)


class PolicyFacts(msgspec.Struct, frozen=True):
    """The idle policy in short. ``in_words``: a sentence for people."""

    action: str
    dry_run: bool
    in_words: str


class Choices(msgspec.Struct, frozen=True):
    """Things a cell can ask for here. ``options``: those of ``%%gpu_train``, by name."""

    options: list[str]
    #: None: no cluster answers
    gpu_types: list[str] | None = None
    max_gpus: int | None = None
    #: those that who asks may use
    queues: list[str] = msgspec.field(default_factory=list)
    prices: PriceList | None = None
    #: named ones that who asks is offered
    environments: list[str] = msgspec.field(default_factory=list)


class ServerStatus(msgspec.Struct, frozen=True):
    """``GET status``. ``cluster``: the gateway's last answer (see ``gateway.age_s``), None where there is none."""

    schema_version: int
    version: str
    gateway: GatewayState
    cluster: StatusDocument | None
    gpus: list[LocalGpu]
    problems: list[Problem]
    policy: PolicyFacts | None = None
    choices: Choices | None = None
    #: whether this server lets who asks release, extend and cancel
    may_act: bool = True
    #: the gateway's account of who asks
    usage: UsageFacts | None = None
    #: None: a cluster is there, or one is named
    start: ClusterStart | None = None


class Health(msgspec.Struct, frozen=True):
    """``GET health``. ``ok``: the extension's own loops run; what is missing around it is in ``problems``."""

    ok: bool
    version: str
    gateway: str
    #: seconds since GPUs and processes were last looked at
    sample_age_s: float
    #: whether kernels can be suspended here: "available", or "not available because …"
    suspend: str
    problems: list[Problem]


class Released(msgspec.Struct, frozen=True):
    """``POST kernels/<id>/release``. Bytes on the device as the kernel's own libraries count them."""

    kernel: str
    freed_bytes: int
    libraries: list[str]
    moved: list[str]
    notes: list[str]


class KeepReply(msgspec.Struct, frozen=True):
    """``POST kernels/<id>/keep``: the policy leaves this kernel alone for ``keep_s`` seconds."""

    kernel: str
    keep_s: float


class CellAdviceRow(msgspec.Struct, frozen=True):
    """Advice on one code cell. ``at``: its place among the cells that were sent; ``number``: among the code cells.

    ``advice``: ``gpu`` (worth a GPU cell), ``already``, ``short``, ``moves``, ``unread``; ``line``: the magic for it.
    """

    at: int
    number: int
    first_line: str
    advice: str
    verdict: str
    reason: str
    sent: list[str]
    back: list[str]
    line: str
    took_s: float | None = None


class AdviceDocument(msgspec.Struct, frozen=True):
    """``POST advice``: the cells that there is something to say of. Seconds of GPUs: None where times are missing."""

    schema_version: int
    conclusion: str
    cells: list[CellAdviceRow]
    plain_s: float | None = None
    with_gpu_cells_s: float | None = None


def choices_of(cluster: StatusDocument | None) -> Choices:
    """GPUs and their number, as the nodes that are up tell; queues, environments, options that exist."""
    if cluster is None:
        return Choices(sorted(OPTIONS))
    gpus = [gpu for node in cluster.nodes if node.up for gpu in node.gpus if gpu.state != "drained"]
    # simulated GPUs have no type that a filter could match
    names = set() if cluster.simulated else {gpu.name for gpu in gpus if gpu.name}
    queues = [share.name for share in cluster.queues if share.usable]
    return Choices(sorted(OPTIONS), sorted(names), len(gpus), queues, cluster.prices, cluster.environments)
