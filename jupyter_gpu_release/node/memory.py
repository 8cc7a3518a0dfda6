"""The host memory limit of a rank: a cheap estimate often, an exact look only when that one is over the limit."""

from __future__ import annotations

import contextlib
import os
import time
from functools import cache
from pathlib import Path

import psutil

from ..core.messages import Outcome
from ..core.node_messages import StartOrder
from ..core.resources import format_bytes
from . import process
from .frames import died_outcome

#: part of the machine's memory that cells may use, and the least share of it that a run gets by default
USABLE = 0.9
LEAST_SHARE = 0.05
_LOOK_S = 0.1
_BACK_OFF_S = 1.0


@cache
def machine_bytes() -> int:
    """Memory of this machine, or of the container that we are in when that is less."""
    total = int(psutil.virtual_memory().total)
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(file).read_text()))
    return total


def share(order: StartOrder, gpus: int, cpus: int) -> int:
    """A default limit in bytes, so that no cell takes the others down: the run's share of a node with so many."""
    part = order.gpus / gpus if order.gpus and gpus else min(1.0, (order.cpus or 1) / max(cpus, 1))
    return int(machine_bytes() * USABLE * max(part, LEAST_SHARE))


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
        """Whether the descendants use more than the limit (looks at most every 100 ms)."""
        now = time.monotonic() if now is None else now
        if not self._limit or not self._started or now < self._next_look:
            return False
        self._next_look = now + _LOOK_S
        pids = list(process.descendants_of(os.getpid()))
        # every fork of the rank counts the fork server's shared pages again: take them off each time
        estimate = sum(max(0, process.anonymous_bytes(pid) - self._baseline) for pid in pids)
        if estimate <= self._limit:
            return False
        self._used = sum(process.own_bytes(pid) for pid in pids)
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
            mend=f"ask for more with --memory (for example --memory {enough}GiB), or load less at a time",
        )
