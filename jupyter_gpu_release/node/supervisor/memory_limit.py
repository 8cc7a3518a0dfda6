"""Host memory limit."""

from __future__ import annotations

import os
import time

from ...host import process_control
from ...protocol.runs import Outcome
from ...units import format_bytes
from ..ipc.frames import died_outcome

_LOOK_S = 0.1
_BACK_OFF_S = 1.0


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
