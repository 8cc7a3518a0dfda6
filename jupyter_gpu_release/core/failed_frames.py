"""Frames of an error on their way home: what a debugger needs of them."""

from __future__ import annotations

from dataclasses import dataclass, field

#: of the variables of all frames; what is beyond is a line of text at home
LIMIT_BYTES = 16 << 20
#: of a deeper stack its two ends
MOST_FRAMES = 60


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


@dataclass(frozen=True)
class FailedFrames:
    """The outermost first. Variables are called ``"<frame's number> <name>"``."""

    frames: list[Frame]
    #: variable → name of the notebook that holds the same object
    refs: dict[str, str] = field(default_factory=dict)
    #: variable → words, where the value stayed behind
    texts: dict[str, str] = field(default_factory=dict)
    #: a graph with all others
    stream: bytes = b""
    buffers: list[bytes] = field(default_factory=list)
