"""The machine's processes, look after look: what was read once is read again only where it may have changed.

Reading ``/proc/<pid>/stat`` of each process costs 20 µs; with hundreds of kernels that was most of a look. Which ids
were given out since the last look is told by one number (``ns_last_pid``): only those can be somebody else's by now.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from .processes import Process, ProcessTable, read_stat

#: parents, sessions and ids are read anew this often, whatever else is known (``setsid`` shows nowhere else)
_ANEW_S = 30.0
#: with more time between two looks the ids may have been given out more than once
_LONGEST_GAP_S = 10.0


class ProcessWatch:
    """One thread looks; a table that it gave never changes, and the next one is the same while nothing happened."""

    def __init__(self, folder: Path = Path("/proc")) -> None:
        self._folder = folder
        self._last_pid = 0
        self._looked_s = self._anew_s = float("-inf")
        self._table = ProcessTable({})

    def look(self) -> ProcessTable:
        """All processes now; empty where there is no ``/proc``."""
        now_s = time.monotonic()
        last_pid = self._read_last_pid()  # before the list: what starts between the two is then new at the next look
        present = {int(name) for name in self._names() if name.isdecimal()}
        known = self._table.processes
        anew = last_pid == 0 or now_s - self._anew_s > _ANEW_S or now_s - self._looked_s > _LONGEST_GAP_S
        asked = present if anew else self._doubtful(present, last_pid)
        if asked or len(present) != len(known):
            found = {pid: known[pid] for pid in present - asked if pid in known}
            found |= {process.pid: process for process in self._read(asked)}
            if found != known:
                self._table = ProcessTable(found)
        self._last_pid, self._looked_s = last_pid, now_s
        self._anew_s = now_s if anew else self._anew_s
        return self._table

    def _doubtful(self, present: set[int], last_pid: int) -> set[int]:
        """Ids that are new or may have been given out anew, and the children of those and of what is gone."""
        known, before = self._table.processes, self._last_pid
        if before <= last_pid:
            given = {pid for pid in present if before < pid <= last_pid}
        else:  # the numbers began again
            given = {pid for pid in present if pid > before or pid <= last_pid}
        doubtful = given | (present - known.keys())
        changed = doubtful | (known.keys() - present)
        orphans = {child for pid in changed for child in self._table.children(pid)}
        return doubtful | (orphans & present)

    def _read(self, pids: set[int]) -> Iterator[Process]:
        for pid in pids:
            if (process := read_stat(f"{self._folder}/{pid}/stat", pid)) is not None:
                yield process

    def _names(self) -> list[str]:
        with contextlib.suppress(OSError):
            return os.listdir(self._folder)
        return []

    def _read_last_pid(self) -> int:
        """The id that was given out last in this namespace; 0 where the system does not tell."""
        with contextlib.suppress(OSError, ValueError):
            return int((self._folder / "sys/kernel/ns_last_pid").read_bytes())
        return 0
