"""Limits that a supervisor watches: the host memory of a cell, and the time in which a rank makes no progress."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from ...host import process_control
from ...host.process_control import stat_fields
from ...protocol.runs import Outcome
from ...units import format_bytes, format_seconds
from ..ipc.frames import died_outcome

#: between two looks at the memory
_LOOK_S = 0.1
_BACK_OFF_S = 1.0
#: so long without any progress between the grant and the first statement ends a run
STALL_S = 120.0
#: at the progress, within that time
_LOOKS = 10
_SWITCHES = re.compile(rb"ctxt_switches:\s+(\d+)")
_WHY = {
    "D": "it waits for a filesystem or a driver that does not answer",
    "T": "something has stopped it (SIGSTOP)",
    "t": "a debugger has stopped it",
}


class MemoryLimit:
    """Watches the supervisor's descendants; ``limit_bytes`` 0 means no limit.

    Pages that the fork server had before the rank was forked do not count.
    """

    def __init__(self, limit_bytes: int, ranks: int = 1) -> None:
        self._limit = limit_bytes // ranks
        self._ranks = ranks
        self._baseline = 0
        self._next_look = 0.0
        self._used = 0
        self._started = False

    def start(self, baseline_bytes: int) -> None:
        """Count from here on; ``baseline_bytes`` is what the rank shares with the fork server."""
        self._baseline = baseline_bytes
        self._started = True

    def is_exceeded(self, now: float | None = None) -> bool:
        """Tell if the descendants use more than the limit (looks at most every 100 ms)."""
        now = time.monotonic() if now is None else now
        if not self._limit or not self._started or now < self._next_look:
            return False
        self._next_look = now + _LOOK_S
        pids = list(process_control.descendants_of(os.getpid()))
        # every fork of the rank counts the fork server's shared pages again: take them off each time
        estimate = sum(max(0, process_control.anonymous_bytes(pid) - self._baseline) for pid in pids)
        if estimate <= self._limit:
            return False
        self._used = sum(process_control.own_bytes(pid) for pid in pids)
        if self._used <= self._limit:
            self._next_look = now + _BACK_OFF_S
            return False
        return True

    def outcome(self) -> Outcome:
        """The outcome of a rank that was killed for its memory."""
        limit, used = format_bytes(self._limit), format_bytes(self._used)
        shared = ""
        if self._ranks > 1:
            shared = f" ({format_bytes(self._limit * self._ranks)} shared by the {self._ranks} ranks of its node)"
        enough = max(1, -(-2 * self._used * self._ranks // (1 << 30)))
        return died_outcome(
            "memory",
            "MemoryError",
            f"the cell used {used} of host memory, its limit is {limit}{shared}, so it was ended; its names are gone",
            hint=f"ask for more with --memory (for example --memory {enough}GiB), or load less at a time",
        )


class StallWatch:
    """Watches the rank ``pid`` from its grant to its first statement; ``limit_s`` 0: it may take any time.

    Loading the inputs may take hours, so time alone tells nothing. Whatever a process loads, from however slow a disk,
    its main thread is scheduled again and again; a stuck one is not.
    """

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
