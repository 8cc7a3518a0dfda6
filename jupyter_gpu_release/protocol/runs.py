"""RunRequest, RunView, Outcome, ErrorInfo, ResourceAsk, PersistWait, KeptLease; Save, Preemption and Attempt of a run
that goes on.

What they are wrapped in is in :mod:`.protocol.session` (kernel and gateway) and :mod:`.protocol.node` (gateway and node
agents). ``CellPayload`` is opaque to the gateway: only the kernel writes it and only the rank reads it.
"""

from __future__ import annotations

import msgspec

from ..settings.built_in import BUILT_IN
from .bounds import (
    Blob,
    Bytes,
    Cores,
    Count,
    Few,
    Finite,
    Gpus,
    Labels,
    Name,
    Names,
    Number,
    Seconds,
    Several,
    Text,
    Versions,
    Word,
)
from .cell import Graph
from .environments import Plan
from .lineage import TrackedFile, UsedInputs


class ResourceAsk(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPUs and node properties of one run; all GPUs at once or none.

    Attributes
    ----------
    gpus : int or float, default 1
        GPUs of all ranks together; 0: a CPU stage. Of one rank it may be a part of a GPU, such as 0.5.
    ranks : int, default 1
        Processes that run the cell; a divisor of ``gpus``.
    nodes : int, default 1
        The ranks are spread evenly over so many nodes; a divisor of ``ranks``.
    any_nodes : bool, default False
        The ranks are spread over whatever nodes have room, also unevenly; ``nodes`` is 1 then.
    may_spread : bool, default False
        The gateway sets ``any_nodes`` where no one node will ever be large enough.
    ps : int, default 0
        Parameter servers: processes without a GPU beside the ranks.
    evaluator : bool, default False
        One more process without a GPU, which evaluates.
    cpus : float, optional
        Processor cores; reserved with 0 GPUs, else only the number of threads.
    memory_bytes : int, optional
        Limit on host memory in bytes (None: a share of the node).
    gpu_type : str, optional
        Type of GPU that a node must have, such as ``h100``.
    min_gpu_memory_bytes : int, optional
        Memory in bytes that each GPU must have.
    labels : dict of str to str, default {}
        Labels that a node must carry.
    min_gpus : int, optional
        It begins with so many GPUs of ``gpus``, and accordingly fewer ranks, where no more are free; ``any_nodes`` is
        set then.
    gpu_memory_bytes : int, optional
        A part of a GPU with so much of its memory: the gateway finds out how large a part that is.
    """

    gpus: Gpus = 1
    ranks: Several = 1
    nodes: Several = 1
    any_nodes: bool = False
    may_spread: bool = False
    ps: Few = 0
    evaluator: bool = False
    cpus: Cores | None = None
    memory_bytes: Bytes | None = None
    gpu_type: Word | None = None
    min_gpu_memory_bytes: Bytes | None = None
    labels: Labels = msgspec.field(default_factory=dict)
    min_gpus: Count | None = None
    gpu_memory_bytes: Bytes | None = None


#: ``--keep auto`` lasts at most this
AUTO_KEEP_S: float = BUILT_IN["auto_keep_s"].default


class KeptLease(msgspec.Struct, frozen=True, omit_defaults=True):
    """Terms on which a kernel kept a run's GPUs. ``until``: unix seconds; ``auto``: while nobody waits for them."""

    until: float
    for_s: float
    auto: bool = False
    #: ``--keep`` asked for longer than this gateway allows
    capped: bool = False


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reason why a run did not succeed. ``pickled``: the user's own exception, see :mod:`.serialization.exceptions`."""

    ename: str
    evalue: str
    traceback: list[str] = msgspec.field(default_factory=list)
    #: code of errors.py when the error is ours (killed for memory, segfault …); empty: the user's own
    code: str = ""
    hint: str = msgspec.field(default="", name="mend")
    pickled: bytes = b""


class ValueInfo(msgspec.Struct, frozen=True):
    """One name that came back: its type's name and its size in bytes."""

    name: str
    type: str
    bytes: int = 0


class FileInfo(msgspec.Struct, frozen=True):
    """A file that the cell wrote; ``path`` is relative to the working directory or starts with ``run_dir/``."""

    path: str
    bytes: int = 0


class GpuUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPU use of a run, from NVML (fractions 0..1); None fields: not known."""

    peak_utilization: float | None = None
    mean_utilization: float | None = None
    peak_memory_bytes: int | None = None
    total_memory_bytes: int | None = None
    #: device memory still held by the run's processes after they ended (should be 0)
    left_bytes: int | None = None
    #: use and memory over time, in percent, a value for each ``span_s`` seconds; None: not told
    utilization: list[int | None] = msgspec.field(default_factory=list)
    memory: list[int | None] = msgspec.field(default_factory=list)
    span_s: float = 0.0
    #: when the first of them began (unix seconds)
    since: float = 0.0


class ImportedModule(msgspec.Struct, frozen=True, array_like=True):
    """A module of an installed library that a rank imported while it held its GPUs, and how long that took.

    What others imported in turn is theirs. ``early``: before the first statement.
    """

    name: str
    seconds: float
    early: bool = False


class RankPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a save that is one rank's, where a gang has several. Rank 0's are the save's values.

    Attributes
    ----------
    buffers : list of int
        Which buffers of the save's values it is: its stream, then its own buffers. Empty: it is a graph of its own.
    values : Graph, optional
        That graph.
    own : list of str
        Names that are other ones than rank 0's, or that rank 0 has not.
    """

    buffers: list[int] = msgspec.field(default_factory=list)
    values: Graph | None = None
    own: list[str] = msgspec.field(default_factory=list)


#: how ranks number the loops of a cell and say their places; another one makes a save no place to go on from
SAVE_FORMAT = 3


class Save(msgspec.Struct, frozen=True, omit_defaults=True):
    """State from which a run goes on: what a salvage would bring home, and its place. Files are named relative to the
    run's folder.

    Attributes
    ----------
    number : int
        Counts the saves of a run, over all its attempts.
    attempt : int
        The attempt that made it; 0 is the first.
    at_s : float
        When the state was as it is here (unix seconds).
    place : str
        The next thing to do, in words: ``epoch 38``, ``round 38 of 100``, ``line 7``.
    bytes : int
        Size of all of it.
    round, rounds : int, optional
        The next round of its loop, from 1, and how many there are, where that is known.
    ran_s : float
        Seconds that this attempt had run by then.
    values, results, notes
        As in an :class:`Outcome`: what comes home should the run go on no more. With the save of an outcome they are
        that outcome's.
    parts : list of RankPart
        Of a gang: those of rank 1, 2 ….
    format : int
        The ``SAVE_FORMAT`` of the package that made it.
    """

    number: int
    attempt: int = 0
    at_s: float = 0.0
    place: str = ""
    bytes: int = 0
    values: Graph | None = None
    results: list[ValueInfo] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    round: int | None = None
    rounds: int | None = None
    ran_s: float = 0.0
    parts: list[RankPart] = msgspec.field(default_factory=list)
    format: int = 1

    @property
    def is_of_this_format(self) -> bool:
        """Tell if this package can go on from it. Its values come home in any case."""
        return self.format == SAVE_FORMAT


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a run. ``status``: ``ok``, ``error``, ``interrupted``, ``timeout``, ``died``, ``memory``,
    ``hung``, ``lost``; ``preempted``: of an attempt that was preempted, with its ``save``."""

    status: str
    error: ErrorInfo | None = None
    values: Graph | None = None
    results: list[ValueInfo] = msgspec.field(default_factory=list)
    #: sentences for the receipt ("loss came back detached", "lock was not returned: …")
    notes: list[str] = msgspec.field(default_factory=list)
    files: list[FileInfo] = msgspec.field(default_factory=list)
    #: data files that the cell read through ``track``
    tracked: list[TrackedFile] = msgspec.field(default_factory=list)
    #: rank 0 had its accelerators and began to load the inputs (this and the next ones: unix seconds)
    granted_s: float | None = None
    #: the first statement began
    started_s: float | None = None
    #: end of the last statement
    ended_s: float | None = None
    #: what came out was copied to host memory
    collected_s: float | None = None
    #: all descendants gone
    released_s: float | None = None
    gpu_use: GpuUse | None = None
    #: why the GPU was not touched, as far as the rank can tell ("`device` is cpu")
    untouched_reason: str = ""
    #: the rank whose error this is
    failed_rank: int = 0
    #: of other ranks than the first that failed: a graph with the fact ``failed``, as rank 0's values have it
    frames: dict[int, Graph] = msgspec.field(default_factory=dict)
    #: of an attempt that was preempted
    save: Save | None = None
    #: what rank 0 had to import with its GPUs in hand
    imported: list[ImportedModule] = msgspec.field(default_factory=list)
    #: of a trial of a sweep: name of what is searched for → its value, where that is a finite number
    metric: dict[str, float] = msgspec.field(default_factory=dict)


# ---------------------------------------------------------------------------------------------- the run
class RunRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One submission. ``payload`` is a msgpack :class:`CellPayload`. The id comes from the client, so that
    sending a request again after a lost connection cannot make a second run.
    """

    run: Word
    session: Word
    ask: ResourceAsk
    payload: Blob
    code: Text = ""
    #: top-level packages that the cell imports, checked before queueing
    imports: Names = msgspec.field(default_factory=list)
    name: Name = ""
    notebook: Name = ""
    cell: Name = ""
    #: ``low``, ``normal``, ``high`` or a number
    priority: Word = "normal"
    #: empty: the user's default queue
    queue: Word = ""
    timeout_s: Seconds | None = None
    wait_s: Seconds | None = None
    #: seconds between an interrupt and the kill
    grace_s: Seconds = BUILT_IN["interrupt_grace_s"].default
    on_disconnect: Word = "continue"
    #: a rank that stays behind the others for longer than this hangs
    rank_timeout_s: Seconds | None = None
    #: a number of ranks was asked for, be it one: frameworks are told of their places
    is_gang: bool = False
    #: the run goes on when the kernel that submitted it ends
    detach: bool = False
    #: seconds that its GPUs stay with the kernel afterwards; ``keep_auto``: while nobody waits for them
    keep_s: Seconds = 0.0
    keep_auto: bool = False
    fresh: bool = False
    #: never collect the run
    pin: bool = False
    versions: Versions = msgspec.field(default_factory=dict)
    #: the inputs, with the runs that made them where that is known
    used: UsedInputs = msgspec.field(default_factory=list)
    #: ``--cache``: digest of code, inputs and options; registered when the run succeeds
    cache_key: Word = ""
    #: top-level packages that the cell and its functions may import
    packages: Names = msgspec.field(default_factory=list)
    #: with ``cache_key``: which object of the graph is which (:class:`.ObjectNumbering`, msgpack)
    cache_marks: Blob = b""
    #: Jupyter's id of the kernel that sends it; empty outside of Jupyter
    kernel: Word = ""
    #: the cell's number, as its notebook shows it
    number: Number = 0
    #: the program that runs the cell where no front end does: papermill, nbclient, script, terminal …
    program: Word = ""
    #: it may be preempted, and is resumed later; None: as its queue says
    restartable: bool | None = None
    #: it runs again so many times when the infrastructure failed
    retries: Few = 0
    #: modules that the cell may import, to be imported before it has its GPUs
    prepare: Names = msgspec.field(default_factory=list)
    #: packages that its processes find in front of the cluster's own; None: nothing but these
    environment: Plan | None = None
    #: id of the sweep that it is a trial of, as :attr:`Run.sweep`; its own: it sends the trials of that sweep
    sweep: Word = ""
    #: of a launched function: its call as lists show it, ``trial(rate=0.1)``
    call: Name = ""

    @property
    def is_driver(self) -> bool:
        """Tell if it sends the trials of a sweep."""
        return bool(self.sweep) and self.sweep == self.run


class PersistWait(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about what the results of a persisting run wait for; :func:`.describe_wait` puts it in words."""

    #: file that they are written to, as the node sees it
    path: str
    bytes: int
    #: why the last try failed; empty while the first one is under way
    reason: str = ""
    #: free space there; None where that cannot be asked (the store is gone)
    free_bytes: int | None = None
    #: where the bytes are kept meanwhile: ``memory`` or ``disk`` of the node, or ``gone`` with a node that is away
    kept: str = "memory"
    tries: int = 0
    #: when the next try begins (unix seconds)
    next_try_at: float | None = None


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody who holds GPUs that a run waits for: how many, and since when at the earliest (unix seconds)."""

    user: str
    gpus: Gpus
    since: Finite


class StartEstimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times at which a waiting run is expected to start: probably, at the earliest, at the latest (unix seconds).

    None: nobody knows.
    """

    at: Finite | None = None
    earliest: Finite | None = None
    latest: Finite | None = None
    #: user whose run ends right before; empty: nobody's
    after: str = ""
    #: those who hold what it waits for, most GPUs first
    holders: list[Holder] = msgspec.field(default_factory=list)


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reason in which somebody is named: :func:`.reason_words` puts it in words for a reader.

    ``code``: ``cancelled``, ``asked``, ``behind`` …; ``facts``: the ``user``, and what else the sentence names.
    """

    code: str
    facts: dict[str, str] = msgspec.field(default_factory=dict)


class Preemption(msgspec.Struct, frozen=True, omit_defaults=True):
    """Notice to a run that it is preempted. ``action``: ``reclaim``, ``preempt``, ``consolidate``, ``grow``, or
    ``request`` where somebody asked for it; ``deadline``: then it is ended (unix seconds).
    """

    action: str
    #: why, in words for the run's owner
    reason: str
    at: float
    deadline: float
    #: the run that gets its GPUs, and whose that is; empty: nobody's
    run: str = ""
    user: str = ""


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a run's life on GPUs that was followed by another. Unix seconds."""

    granted_at: float
    gone_at: float
    running_at: float | None = None
    hosts: list[str] = msgspec.field(default_factory=list)
    gpu_name: str = ""
    #: how it ended: ``preempted``, ``lost``, ``died`` …
    status: str = "preempted"
    #: why, in words
    reason: str = ""
    #: for whose run it was preempted, and when it was asked
    user: str = ""
    noticed_at: float | None = None
    #: where the run goes on, in words; empty: at the beginning
    place: str = ""
    #: that place is its own
    was_saved: bool = False
    #: of what it did so much is done again
    lost_s: float = 0.0


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run, in the words of all its documents: :class:`RunView` for its kernel, :class:`.RunRow` for lists. Times are
    unix seconds.
    """

    run: str
    user: str
    state: str
    gpus: Gpus = 1
    ranks: Count = 1
    name: str = ""
    notebook: str = ""
    cell: str = ""
    queue: str = "default"
    priority: str = "normal"
    #: that word as a number
    priority_value: int = 50
    simulated: bool = False
    submitted_at: Finite = 0.0
    granted_at: Finite | None = None
    running_at: Finite | None = None
    #: lease gone: descendants reaped and the next run could be granted these GPUs
    gone_at: Finite | None = None
    finished_at: Finite | None = None
    #: from last statement to lease gone
    release_ms: Finite | None = None
    position: Number | None = None
    #: why it waits, or how it ended, in words
    reason: str = ""
    #: the same for a reader who may be named in it; None: nobody is
    cause: Reason | None = None
    hosts: list[str] = msgspec.field(default_factory=list)
    gpu_ids: list[str] = msgspec.field(default_factory=list)
    gpu_name: str = ""
    #: it goes on when the kernel that submitted it ends
    detached: bool = False
    #: never collected
    pinned: bool = False
    #: when and why the results were removed from the store (the run's facts stay)
    collected_at: Finite | None = None
    collected_because: str = ""
    #: who exported the run elsewhere, for one that was imported
    imported_from: str = ""
    #: Jupyter's id of the kernel that submitted it
    kernel: str = ""
    #: its name, with a function's arguments, or the first line of its code that says something
    title: str = ""
    #: where that stands: ``digits.ipynb [3]``, ``papermill digits.ipynb [3]``, ``script fit.py``
    origin: str = ""
    #: of a part of a GPU: the most runs that have had the rest of it meanwhile
    shared_with: Count = 0
    #: of an elastic run (``--min-gpus``): as many GPUs as it would have at most; 0: it is none
    most_gpus: Count = 0
    #: id of the sweep that it is a trial of; it looks like a run's, and no run has it
    sweep: str = ""


class RunView(Run, frozen=True, omit_defaults=True):
    """View of a run as a client may see it; the newest one replaces the older ones (``seq`` grows)."""

    seq: Number = 0
    session: str = ""
    #: set once the lease is gone (values inline where they are small); only for the owner
    outcome: Outcome | None = None
    #: why a persisting run's results are not durable yet
    waits_for: PersistWait | None = None
    #: its GPUs stayed with the kernel when it ended
    kept: KeptLease | None = None
    #: it began on GPUs that an earlier cell of its kernel had kept
    on_kept: bool = False
    #: while it waits
    start: StartEstimate | None = None
    #: it may be preempted; why not after all, where that was found out
    restartable: bool = False
    stays: str = ""
    #: it is being preempted, and has not gone back to the queue yet
    notice: Preemption | None = None
    #: what it did before, on other GPUs: it goes on where that ended
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    #: starts that came to nothing before its cell began: for nodes each was an attempt, for users none
    vain_starts: Count = 0
    #: when its last save was made (unix seconds)
    saved_at: Finite | None = None
    #: what was built for it before it could be queued, and how long that took; empty: it was there, or it needs none
    built: str = ""
    #: of the environment that its cell runs in; empty: it has the nodes' own packages
    environment_digest: str = ""

    @property
    def attempt(self) -> int:
        """The number of its present attempt (of one that waits: of the next)."""
        return len(self.attempts) + self.vain_starts
