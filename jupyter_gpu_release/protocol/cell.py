"""CellPayload, CellSource, Graph, failed frames, last output: what kernel and rank say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from .. import streams
from ..settings.built_in import BUILT_IN

#: Values of at most this many bytes in all travel inside the messages, larger ones through the store.
INLINE_LIMIT_BYTES: int = BUILT_IN["inline_bytes"].default
#: the name under which a run keeps what its function returned
RESULT = "result"
#: in a save, what only the run itself needs to go on (:mod:`.node.values.resume_state`); no name of Python's
RESUME = "resume state"


# ------------------------------------------------------------------------------------------ the cell
class Graph(msgspec.Struct, frozen=True, omit_defaults=True):
    """A serialised object graph: inline (``stream`` and ``buffers``) or the name of a file in the run folder.

    ``digest`` is the blake2b-128 hex digest of the graph file's bytes, or empty when inline. ``stored_as``: the
    file with what is inline here.
    """

    stream: bytes = b""
    buffers: list[bytes] = msgspec.field(default_factory=list)
    file: str = ""
    digest: str = ""
    stored_as: str = ""


class CellSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text of a cell of the notebook, by the file name under which it was compiled."""

    filename: str
    count: int
    text: str


class SetupCell(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cell under ``%%gpu_setup``, as Python. ``modules``: those that it imports."""

    source: str
    filename: str = ""
    count: int = 0
    line_offset: int = 1
    modules: list[str] = msgspec.field(default_factory=list)
    #: it may look for a GPU, so it runs once there is one
    is_late: bool = False


class FrontEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts that libraries ask of the process that a cell comes from, to know how to draw."""

    #: id of the Jupyter message that runs the cell
    request: str = ""
    #: ``sys.stdout.isatty()``
    is_terminal: bool = False
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    #: variables that count: those that ``environment`` does not have are not set
    asked: list[str] = msgspec.field(default_factory=list)


class CellPayload(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a rank needs to run the cell. Paths are those of the kernel's host."""

    source: str
    #: execution count of the notebook cell; tracebacks say ``Cell In[count], line …``
    count: int = 0
    #: lines of the cell before ``source`` (the magic's own), so that line numbers are the cell's own
    line_offset: int = 1
    #: file name under which the rank compiles the cell (the kernel then knows whose functions come home)
    filename: str = ""
    #: text of other cells whose functions and classes are sent
    sources: list[CellSource] = msgspec.field(default_factory=list)
    inputs: Graph = Graph()
    #: the notebook's setup, which runs before the inputs are there, and what it reads
    setup: list[SetupCell] = msgspec.field(default_factory=list)
    setup_inputs: Graph = Graph()
    #: ``--out``: return exactly these; None: found automatically
    out: list[str] | None = None
    #: names never returned (``--skip``)
    skip: list[str] = msgspec.field(default_factory=list)
    #: names whose values come from all ranks, as a list (``--gather``)
    gather: list[str] = msgspec.field(default_factory=list)
    #: names that the notebook has, that are not sent, and that the cell perhaps unbinds
    unsent: list[str] = msgspec.field(default_factory=list)
    #: names that are fetched when the cell asks for them → bytes at least
    held: dict[str, int] = msgspec.field(default_factory=dict)
    #: name → expression evaluated again in the rank instead of sending the value (device choices)
    reevaluate: dict[str, str] = msgspec.field(default_factory=dict)
    workdir: str = ""
    #: (st_ino, st_mtime_ns) of ``workdir`` as the kernel sees it: a node that finds the same may use it
    workdir_stamp: tuple[int, int] = (0, 0)
    #: whether ``--workdir`` was given (then it must exist on the node)
    workdir_asked: bool = False
    #: whether the kernel's folder was deleted: then the cell has none, either
    workdir_deleted: bool = False
    #: entries that the notebook added to ``sys.path``, in their order; "" is ``workdir`` (else first)
    sys_path: list[str] = msgspec.field(default_factory=list)
    #: so many of them, the last ones, come after the installed packages
    sys_path_behind: int = 0
    #: relative path → source of local modules, for nodes that do not see ``workdir``
    modules: dict[str, bytes] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)
    #: environment variables that the notebook has deleted
    unset: list[str] = msgspec.field(default_factory=list)
    #: the kernel is a plain IPython in a terminal: libraries shall draw text, not widgets
    terminal: bool = False
    front_end: FrontEnd = FrontEnd()
    #: pickled ambient state (random states, matplotlib settings), see docs/guide
    ambient: bytes = b""
    #: run → digest of its results, of those that the sender was told of; only where a group shares the store
    told: dict[str, str] = msgspec.field(default_factory=dict)
    #: name of a launched function: ``source`` is only its call, which tracebacks leave out; inputs do not come back
    function: str = ""
    #: it may install packages: then it has a place for them in front of those that are there
    installs: bool = False
    #: lines of loops of which the notebook has said that a restartable cell cannot be left between their rounds
    plain_loops: list[int] = msgspec.field(default_factory=list)
    #: of a trial of a sweep: name of what is searched for
    metric: str = ""


#: of the variables of all frames; what is beyond is a line of text at home
FRAMES_LIMIT_BYTES = 16 << 20
#: of those of another rank than the first, whose frames travel in a message; of all such ranks in all
OTHERS_LIMIT_BYTES, OTHERS_TOGETHER_BYTES = 256 << 10, 512 << 10
#: of a deeper stack its two ends
MOST_FRAMES = 60
#: of a longer chain the last ones
MOST_ERRORS = 20


@streams.named
@dataclass(frozen=True)
class Frame:
    """One frame. ``variables``: the names of its locals (None: they are the module's own names)."""

    file: str
    name: str
    first_line: int
    #: where it was when the error passed
    line: int
    module: str
    #: its globals are the notebook's names
    is_users: bool
    variables: list[str] | None = None
    #: names of the function's arguments, in their order
    arguments: list[str] = field(default_factory=list)


@streams.named
@dataclass(frozen=True)
class FailedError:
    """One error of a chain, and its frames, the outermost first."""

    name: str
    text: str
    #: see :mod:`.serialization.exceptions`
    pickled: bytes
    frames: list[Frame]
    #: the next one of the chain is its cause (``raise … from …``), not only what was being handled
    has_cause: bool = False


@streams.named
@dataclass(frozen=True)
class FailedFrames:
    """An error, those that it came from, and the frames of all. Variables are called ``"<frame's number> <name>"``."""

    #: the one that ended the cell, then what it came from
    errors: list[FailedError]
    #: variable → name of the notebook that holds the same object
    refs: dict[str, str] = field(default_factory=dict)
    #: variable → words, where the value stayed behind
    texts: dict[str, str] = field(default_factory=dict)
    #: a graph with all others
    stream: bytes = b""
    buffers: list[bytes] = field(default_factory=list)

    @property
    def frames(self) -> list[Frame]:
        """Frames of all errors, by their numbers."""
        return [frame for error in self.errors for frame in error.frames]


#: a larger value stays behind, and ``_`` says so
LAST_OUTPUT_LIMIT_BYTES = 1 << 20


@streams.named
@dataclass(frozen=True)
class LastOutput:
    """One of: the ``name`` of the notebook that holds it (or ``name.attribute``), a graph, or ``text`` in its place."""

    name: str = ""
    #: package of its class: where that is not imported, nothing is imported for a value that nobody asked for
    library: str = ""
    stream: bytes = b""
    buffers: list[bytes] = field(default_factory=list)
    text: str = ""
