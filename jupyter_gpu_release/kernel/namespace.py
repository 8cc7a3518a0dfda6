"""The notebook's side of a cell's names: what it needs goes out as one graph, what it made comes back in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.messages import Outcome, ValueInfo


@dataclass(frozen=True)
class Choice:
    """What the user said about names. ``include``: ``--in a,b`` (exactly these; None: found automatically);
    ``include_more``: ``--in +a`` (in addition); ``out``: ``--out``; ``skip``: ``--skip``.
    """

    include: list[str] | None = None
    include_more: list[str] = field(default_factory=list)
    out: list[str] | None = None
    skip: list[str] = field(default_factory=list)


@dataclass
class Prepared:
    """A cell ready to be sent. Keep it until its values are applied: it holds the originals of the inputs."""

    #: for CellPayload
    out: list[str] | None = None
    skip: list[str] = field(default_factory=list)
    reevaluate: dict[str, str] = field(default_factory=dict)
    ambient: bytes = b""
    modules: dict[str, bytes] = field(default_factory=dict)
    sys_path: list[str] = field(default_factory=list)
    #: the graph: inline when ``total_bytes`` <= INLINE_LIMIT_BYTES (``Graph(stream, [bytes(b) for b in buffers])``),
    #: else ``write_graph(paths.inputs, stream, buffers)`` -> digest, ``Graph(file="inputs.graph", digest=digest)``
    stream: bytes = b""
    buffers: list[memoryview] = field(default_factory=list)
    total_bytes: int = 0
    #: for RunRequest.imports
    imports: list[str] = field(default_factory=list)
    #: for the receipt and --estimate
    sent: list[ValueInfo] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: names held back because they look like secrets
    held_back: list[str] = field(default_factory=list)
    #: whether the body calls input() or getpass()
    asks_input: bool = False
    #: name -> object that was sent
    originals: dict[str, Any] = field(default_factory=dict)


class Namespace:
    """The notebook's names; one per kernel (works with ipykernel and plain IPython)."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def collect(self, body: str, choice: Choice = Choice(), *, line_offset: int = 1) -> Prepared:  # noqa: B008
        """Find and serialise what the cell ``body`` (as typed, magic line removed) needs.

        Raises SyntaxError (the cell's own, line numbers of the whole cell), OptionError (a name of ``--in`` that
        does not exist), CannotSendError (a value that cannot be pickled: name, path, reason, way out).
        """
        raise NotImplementedError

    def apply(
        self, stream: bytes, buffers: Sequence[Any], outcome: Outcome, prepared: Prepared | None = None
    ) -> list[ValueInfo]:
        """Bind the names that came back (``buffers``: bytes of an inline graph or those of ``open_graph``).

        Returns what was bound. Names that could not be loaded here are bound to placeholders and said in
        :attr:`notes`. ``prepared`` is what :meth:`collect` returned for this run (None: attached later).
        """
        raise NotImplementedError

    @property
    def notes(self) -> list[str]:
        """Sentences of the last :meth:`apply` for the receipt."""
        return []
