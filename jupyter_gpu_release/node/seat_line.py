"""The line to one process of a run, with its place in the gang."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from ..core.messages import Outcome
from .frames import Kind, pack
from .hangs import Progress
from .pair import Pair
from .seats import Seat


@dataclass
class SeatLine:
    """What is known of the process at ``seat``, and the way to it."""

    seat: Seat
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: on this node; other nodes' agents look after theirs
    pair: Pair | None = None
    gpu_ids: list[str] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    outcome: Outcome | None = None

    def send(self, kind: Kind, body: bytes) -> None:
        """Say something; a process that is gone does not hear it."""
        with contextlib.suppress(OSError):
            self.writer.write(pack(kind, body))
