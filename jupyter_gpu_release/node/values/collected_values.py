"""Values that a rank has gathered to send them home, or to go on with them elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...protocol.runs import ValueInfo
from ...store.digests import new_hasher


@dataclass
class Collected:
    """Everything that goes home. ``buffers`` point at live memory of this process."""

    stream: bytes
    buffers: list[memoryview]
    total_bytes: int
    results: list[ValueInfo]
    notes: list[str] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)
    #: name → where it is: start and end in the stream, first and last of its buffers
    spans: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    def digests(self) -> dict[str, str]:
        """Name → digest of what is written for it: the same in two ranks, if their values are."""
        found = {}
        for name, (begin, end, first, last) in self.spans.items():
            hasher = new_hasher()
            for piece in (self.stream[begin:end], *self.buffers[first:last]):
                hasher.update(piece)
            found[name] = str(hasher.hexdigest())
        return found
