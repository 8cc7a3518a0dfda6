"""A cell's last expression on its way to ``_`` and ``Out[n]`` of the notebook."""

from __future__ import annotations

from dataclasses import dataclass, field

#: a larger value stays behind, and ``_`` says so
LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class LastOutput:
    """One of: the ``name`` of the notebook that holds it (or ``name.attribute``), a graph, or ``text`` in its place."""

    name: str = ""
    #: package of its class: where that is not imported, nothing is imported for a value that nobody asked for
    library: str = ""
    stream: bytes = b""
    buffers: list[bytes] = field(default_factory=list)
    text: str = ""
