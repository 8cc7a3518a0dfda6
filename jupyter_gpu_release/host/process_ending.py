"""Ending processes for certain: until none is left, and with a word about those that cannot be ended."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from . import process_control

#: a process that was killed so long ago and is still there waits in the kernel
STUCK_S = 10.0
_LOOK_S = 0.1


def end_all(
    find: Callable[[], Iterable[int]], *, on_stuck: Callable[[str], None] = lambda _: None, limit_s: float = math.inf
) -> int:
    """SIGKILL what ``find`` finds until it finds nothing more, at most ``limit_s``; returns how many have ended."""
    began_s, is_told, ended = time.monotonic(), False, 0
    watched: dict[int, int] = {}
    while True:
        for pid in set(find()) - set(watched):
            _watch(pid, watched)
        if not watched:
            return ended
        over_s = time.monotonic() - began_s
        if over_s > limit_s:
            break
        if over_s > STUCK_S and not is_told:
            is_told = True
            on_stuck(in_words(watched))
        ended += _kill(watched)
    for fd in watched.values():
        os.close(fd)
    return ended


def _watch(pid: int, watched: dict[int, int]) -> None:
    """Unless it has ended and only waits to be collected."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        if select.select([fd], [], [], 0)[0]:
            os.close(fd)
        else:
            watched[pid] = fd


def _kill(watched: dict[int, int]) -> int:
    """Kill them and wait a moment; those that have ended are watched no more."""
    for fd in watched.values():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    poll = select.poll()
    for fd in watched.values():
        poll.register(fd, select.POLLIN)
    gone = {fd for fd, _ in poll.poll(_LOOK_S * 1000)}
    for pid, fd in list(watched.items()):
        if fd in gone:
            os.close(fd)
            del watched[pid]
    return len(gone)


def in_words(pids: Iterable[int]) -> str:
    """Say which processes cannot be ended, and where each waits; for the cell's output and the log."""
    each = ", ".join(_in_words(pid) for pid in sorted(pids))
    return (
        f"the cell has ended, but {each} cannot be killed: the system waits for a driver or a filesystem there. "
        "Its GPUs stay held until it is gone."
    )


def _in_words(pid: int) -> str:
    name, where = process_control.name_of(pid), ""
    with contextlib.suppress(OSError):
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0 \n")
    return f"process {pid} ({name or 'gone'}{', in ' + where if where else ''})"
