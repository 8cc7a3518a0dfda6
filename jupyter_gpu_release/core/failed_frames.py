"""Frames of an error on their way home: what a debugger needs of them."""

from __future__ import annotations

from dataclasses import dataclass, field

#: of the variables of all frames; what is beyond is a line of text at home
LIMIT_BYTES = 16 << 20
#: of those of another rank than the first, whose frames travel in a message; of all such ranks in all
OTHERS_LIMIT_BYTES, OTHERS_TOGETHER_BYTES = 256 << 10, 512 << 10
#: of a deeper stack its two ends
MOST_FRAMES = 60
#: of a longer chain the last ones
MOST_ERRORS = 20


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


@dataclass(frozen=True)
class FailedError:
    """One error of a chain, and its frames, the outermost first."""

    name: str
    text: str
    #: see :mod:`.raised`
    pickled: bytes
    frames: list[Frame]
    #: the next one of the chain is its cause (``raise … from …``), not only what was being handled
    has_cause: bool = False


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
        """Those of all errors, by their numbers."""
        return [frame for error in self.errors for frame in error.frames]
