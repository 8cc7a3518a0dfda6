"""``/proc`` tables: parents, sessions, CPU time, environment.

Reading ``/proc/<pid>/stat`` of each process costs 20 µs; with hundreds of kernels that was most of a look. Which ids
were given out since the last look is told by one number (``ns_last_pid``): only those can be somebody else's by now.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .process_control import stat_fields

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: the one namespace in which process ids are the driver's own (linux/proc_ns.h: PROC_PID_INIT_INO)
_FIRST_NAMESPACE = "pid:[4026531836]"


@dataclass(frozen=True, slots=True)
class Process:
    """One process. ``start_s`` counts from boot; pid and start together name it for good."""

    pid: int
    parent: int
    session: int
    start_s: float


class ProcessTable:
    """All processes at one moment, and who descends from whom."""

    def __init__(self, processes: Mapping[int, Process]) -> None:
        self.processes = processes
        self._children: dict[int, list[int]] = {}
        self._sessions: dict[int, list[int]] = {}
        for process in processes.values():
            self._children.setdefault(process.parent, []).append(process.pid)
            self._sessions.setdefault(process.session, []).append(process.pid)

    @classmethod
    def read(cls, folder: Path = Path("/proc")) -> ProcessTable:
        """Read ``/proc``; empty where there is none."""
        found: dict[int, Process] = {}
        try:
            names = os.listdir(folder)
        except OSError:
            return cls(found)
        for name in names:
            if name.isdecimal() and (process := read_stat(f"{folder}/{name}/stat", int(name))) is not None:
                found[process.pid] = process
        return cls(found)

    def get(self, pid: int) -> Process | None:
        """The process of this id."""
        return self.processes.get(pid)

    def tree(self, root: int) -> set[int]:
        """``root``, its descendants, and what stayed in its session (a worker whose parent ended)."""
        found: set[int] = set()
        waiting = [root, *self._sessions.get(root, ())]
        while waiting:
            pid = waiting.pop()
            if pid not in found and pid in self.processes:
                found.add(pid)
                waiting += self._children.get(pid, ())
        return found

    def descends(self, pid: int, ancestor: int) -> bool:
        """Tell if ``ancestor`` is above ``pid``."""
        seen: set[int] = set()
        while (process := self.processes.get(pid)) is not None and pid not in seen:
            seen.add(pid)  # ids that were given out anew while the table was read may make a circle
            if (pid := process.parent) == ancestor:
                return True
        return False

    def children(self, pid: int) -> Sequence[int]:
        """Child processes of ``pid``."""
        return self._children.get(pid, ())


def read_stat(path: str, pid: int) -> Process | None:
    """Read ``/proc/<pid>/stat``; None when the process is gone."""
    try:
        fields = stat_fields(path)
        return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]) / _TICKS_PER_S)
    except (OSError, ValueError, IndexError):
        return None


def cpu_s_of(pids: Iterable[int]) -> float:
    """Seconds of CPU time of these processes so far; those that are gone count nothing."""
    return sum(map(_cpu_s, pids))


def _cpu_s(pid: int) -> float:
    """CPU time by the clock that Linux has for each process: 1 µs, where reading its ``stat`` takes 20."""
    with contextlib.suppress(OSError, AttributeError):
        # linux/posix-timers_types.h: a process clock's number is its complemented id above CPUCLOCK_SCHED (2)
        return time.clock_gettime(~pid << 3 | 2)
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = stat_fields(f"/proc/{pid}/stat")
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return 0.0


def since_boot_s() -> float:
    """The clock of :attr:`Process.start_s`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty when it is gone or somebody else's."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.split(b"=", 1) for item in content.split(b"\0") if b"=" in item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}


def in_first_namespace() -> bool:
    """Tell if process ids here are those that the driver uses (not so in most containers)."""
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    return False


def has_open(pid: int, prefixes: tuple[str, ...]) -> bool:
    """Tell if a process has a file open whose path begins with one of ``prefixes`` (``/dev/nvidia``)."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith(prefixes):
                return True
    return False


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

    def read_processes(self) -> ProcessTable:
        """All processes now; empty where there is no ``/proc``."""
        now_s = time.monotonic()
        last_pid = self._read_last_pid()  # before the list: what starts between the two is then new at the next look
        present = {int(name) for name in self._names() if name.isdecimal()}
        known = self._table.processes
        has_wrapped = last_pid < self._last_pid
        anew = has_wrapped or last_pid == 0 or now_s - self._anew_s > _ANEW_S or now_s - self._looked_s > _LONGEST_GAP_S
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
        known = self._table.processes
        doubtful = {pid for pid in present if self._last_pid < pid <= last_pid} | (present - known.keys())
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
