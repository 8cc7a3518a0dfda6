"""Ranks that hold GPUs, have not begun their cell, and do nothing at all: without this they would wait for ever.

Loading the inputs may take hours, so time alone tells nothing. Whatever a process loads, from however slow a disk, its
main thread is scheduled again and again; a stuck one is not.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from ...host.processes import stat_fields
from ...protocol.runs import Outcome
from ...units import format_seconds
from ..ipc.frames import died_outcome

#: so long without any progress between the grant and the first statement ends a run
STALL_S = 120.0
_LOOKS = 10
_SWITCHES = re.compile(rb"ctxt_switches:\s+(\d+)")
_WHY = {
    "D": "it waits for a filesystem or a driver that does not answer",
    "T": "something has stopped it (SIGSTOP)",
    "t": "a debugger has stopped it",
}


class StallWatch:
    """Watches the rank ``pid`` from its grant to its first statement; ``limit_s`` 0: it may take any time."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self._pid = pid
        self._limit_s = limit_s
        self._since_s: float | None = None
        self._next_look_s = 0.0
        self._seen: list[bytes] = []

    def start(self, now_s: float) -> None:
        """The rank has its GPUs."""
        if self._limit_s:
            self._since_s = self._next_look_s = now_s

    def stop(self) -> None:
        """The cell begins, or never will."""
        self._since_s = None

    def is_stalled(self, now_s: float) -> bool:
        """Tell if the rank has done nothing for as long as the limit."""
        if self._since_s is None or now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + self._limit_s / _LOOKS
        progress = _progress(self._pid)
        if progress != self._seen:
            self._seen, self._since_s = progress, now_s
        return now_s - self._since_s >= self._limit_s

    def outcome(self, state: str) -> Outcome:
        """The outcome of a rank that was killed for it; ``state``: as in ``/proc``, just before."""
        why = _WHY.get(state, "it waits for something that does not come")
        text = (
            f"the cell had its GPUs, but did not begin: its process did nothing for {format_seconds(self._limit_s)} "
            f"while it loaded what the cell reads ({why})"
        )
        hint = "run the cell again; `jupyter gpu doctor` looks at the store and the nodes"
        return died_outcome("lost", "CellNotBegun", text, code="lost", hint=hint)


def _progress(pid: int) -> list[bytes]:
    """Processor time of the process, and how often its main thread was scheduled."""
    with contextlib.suppress(OSError, ValueError):
        fields = stat_fields(f"/proc/{pid}/stat")
        return [*fields[11:13], *_SWITCHES.findall(Path(f"/proc/{pid}/status").read_bytes())]
    return []
