"""Processes of this machine: subreaper, parent-death signal, kill trees, ending for certain, markers, memory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from time import sleep
from typing import Literal

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
#: PF_EXITING, and where flags stand behind the name in ``/proc/<pid>/stat``
_EXITING, _FLAGS = 0x4, 6

CLUSTER_MARKER = "JUPYTER_GPU_CLUSTER"
RUN_MARKER = "JUPYTER_GPU_RUN"
NODE_MARKER = "JUPYTER_GPU_NODE"
#: names (of at most 15 characters) of processes that outlive those that made them
PERSISTER, MOVER = "jgr-persister", "jgr-mover"
#: a process that was killed so long ago and is still there waits in the kernel
STUCK_S = 10.0
#: closing a file writes it to where it is; one that takes longer hangs
_CLOSED_S = 2.0
_LOOK_S = 0.1


def become_subreaper() -> None:
    """Orphans of this process's descendants become its children instead of init's."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent(parent: int, death_signal: signal.Signals) -> None:
    """Ask for ``death_signal`` when the parent *thread* ends; exits at once if ``parent`` is gone already."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Take :func:`die_with_parent` back."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def user_of(pid: int) -> int:
    """The real user of a process; raises OSError for one that is gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nUid:")[2].split()[0])


def spare_from_oom_killer(pid: int) -> None:
    """Have a descendant of this process not be the system's first victim for want of memory."""
    if pid in descendants_of(os.getpid()):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/oom_score_adj").write_text("0")


def is_readable(descriptor: int) -> bool:
    """Tell if there is something to read now, of a process descriptor: if the process has ended."""
    poll = select.poll()  # `select.select` refuses numbers from 1,024 on
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def pid_behind(descriptor: int) -> int:
    """The process that a process descriptor means; raises OSError for any other descriptor, or one that is gone."""
    found = re.search(r"^Pid:\t(\d+)$", Path(f"/proc/self/fdinfo/{descriptor}").read_text(), re.MULTILINE)
    if found is None:
        raise ProcessLookupError(errno.ESRCH, "it is no descriptor of a living process")
    return int(found[1])


class ForeignProcess:
    """A process that is no child of ours, with the methods of a child (``Popen``)."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """None while it runs; then 0, since nobody but its parent learns more."""
        return 0 if is_readable(self._descriptor) else None

    def send_signal(self, number: int) -> None:
        """Send it a signal; raises ``ProcessLookupError`` when it is gone."""
        signal.pidfd_send_signal(self._descriptor, signal.Signals(number))

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)


def name_this(name: str) -> None:
    """Give this process a name of its own in ``/proc`` (at most 15 characters)."""
    _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def name_of(pid: int | str) -> str:
    """The name of a process (``self``: this one) in ``/proc``; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    return ""


def yield_to_others() -> None:
    """Let everybody else have the cores and the disk first, from now on."""
    with contextlib.suppress(OSError):
        os.nice(10)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with contextlib.suppress(psutil.Error, OSError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_BE, 7)


def close_files(but: Iterable[int] = ()) -> None:
    """Close all that this process has open, with the locks and ports, except for 0, 1, 2 and these.

    Files of a filesystem that does not answer are closed when it does: nobody waits for them.
    """
    keep = {0, 1, 2, *but}
    files = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the listing's own
            path = os.readlink(f"/proc/self/fd/{fd}")
            if fd in keep:
                continue
            if path.startswith("/") and not path.startswith("/dev/"):
                files.append(fd)
            else:
                os.close(fd)
    if files:
        closer = threading.Thread(target=_close_each, args=(files,), name="jgr-closer", daemon=True)
        closer.start()
        closer.join(_CLOSED_S)


def _close_each(files: list[int]) -> None:
    for fd in files:
        with contextlib.suppress(OSError):
            os.close(fd)


def is_persister(pid: int) -> bool:
    """Tell if ``pid`` keeps results that are not durable yet: no sweep may kill it, only the cluster's end."""
    return name_of(pid) == PERSISTER and not is_gone(pid)


def persisters() -> frozenset[int]:
    """All processes of this machine that keep results."""
    return frozenset(pid for pid in psutil.pids() if is_persister(pid))


def children_of(pid: int) -> list[int]:
    """Direct children of ``pid`` (of all its threads); empty when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return found


def descendants_of(pid: int) -> Iterator[int]:
    """All living descendants of ``pid``, parents before children."""
    queue = children_of(pid)
    while queue:
        child = queue.pop(0)
        yield child
        queue += children_of(child)


def has_others(pid: int, known: Collection[int]) -> bool:
    """Tell if ``pid`` has descendants but for these, which have none that is not one of them."""
    # from below: a child whose parent ends meanwhile moves up, past who looks from above
    return any(child not in known for parent in (*known, pid) for child in children_of(parent))


def kill_each(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> int:
    """Send ``number`` to each process that is still there; returns how many got it."""
    hit = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            hit += 1
    return hit


def anonymous_bytes(pid: int) -> int:
    """Anonymous and shared memory of ``pid`` in RAM; cheap, but counts pages shared with its fork parent."""
    return _sum_of_fields(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))


def own_bytes(pid: int) -> int:
    """Proportional share of anonymous and shared memory of ``pid``; exact, but costs milliseconds."""
    return _sum_of_fields(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))


def private_bytes(pid: int) -> int:
    """Memory of ``pid`` that it shares with nobody, as far as it is none of files; costs milliseconds."""
    return _sum_of_fields(f"/proc/{pid}/smaps_rollup", (b"Private_Dirty:", b"Private_Hugetlb:"))


def _sum_of_fields(path: str, fields: tuple[bytes, ...]) -> int:
    """Bytes in all of the ``fields`` (KiB there) of a file of /proc; 0 when the process is gone."""
    with contextlib.suppress(OSError), open(path, "rb") as lines:
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(fields))
    return 0


def end_marked(marker: str, value: str, *, spare: frozenset[int] = frozenset(), wait_s: float = 2.0) -> int:
    """SIGKILL every process of this user whose *initial* environment says ``marker=value``; returns how many."""
    victims = []
    for process in psutil.process_iter():
        if process.pid in spare or process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(marker) == value:
                process.kill()
                victims.append(process)
    psutil.wait_procs(victims, timeout=wait_s)
    return len(victims)


def left_by(rank: int, mark: str, run: str, user: int | None = None) -> set[int]:
    """Living processes of a rank that nobody looks after any more, but for its persister.

    What it forked shares its memory called ``mark``, what it started anew has its run's marker in the environment.
    ``user``: whose alone, where it is this user's word that they are the rank's.
    """
    forked, started = mark.encode(), f"{RUN_MARKER}={run}".encode()
    found = {pid for pid in psutil.pids() if pid != os.getpid() and _is_left(pid, forked, started)}
    if user is not None:
        found = {pid for pid in found if _is_of(pid, user)}
    return {pid for pid in found if pid == rank or not is_persister(pid)}


def _is_of(pid: int, user: int) -> bool:
    with contextlib.suppress(OSError):
        return user_of(pid) == user
    return False


def _is_left(pid: int, forked: bytes, started: bytes) -> bool:
    with contextlib.suppress(OSError):
        if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
            return False
    with contextlib.suppress(OSError):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if started in environment or forked in Path(f"/proc/{pid}/maps").read_bytes():
            return True
    return _is_ending(pid)


def _is_ending(pid: int) -> bool:
    """Tell if the system takes the memory of ``pid`` back, and with it all that tells whose it was.

    Its files, devices among them, are closed only after that: half a second later with some GiB.
    """
    with contextlib.suppress(OSError, ValueError):
        fields = stat_fields(f"/proc/{pid}/stat")
        return bool(int(fields[_FLAGS]) & _EXITING) and fields[0] not in (b"Z", b"X")
    return False


def command_of(pid: int) -> bytes:
    """The command line of ``pid``, words separated by zero bytes; empty when it has ended or is about to."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def stat_fields(path: str) -> list[bytes]:
    """The fields behind the name in a file like ``/proc/<pid>/stat``; raises OSError."""
    # no file object: this may be done for each process of the machine, every two seconds
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    # the name in parentheses may hold blanks and parentheses itself; proc(5) numbers the fields from 1
    return text[text.rindex(b")") + 2 :].split(maxsplit=20)


def state_of(pid: int) -> str:
    """The letter that ``/proc`` has for what ``pid`` does; empty when it is gone."""
    with contextlib.suppress(OSError, ValueError):
        return stat_fields(f"/proc/{pid}/stat")[0].decode()
    return ""


def is_gone(pid: int) -> bool:
    """Tell if ``pid`` is no living process (zombies count as gone)."""
    return state_of(pid) in ("", "Z", "X")


def wait_until_gone(pid: int, limit_s: float) -> bool:
    """Wait at most ``limit_s`` for ``pid`` to end; returns whether it did."""
    deadline = time.monotonic() + limit_s
    while not is_gone(pid):
        if time.monotonic() > deadline:
            return False
        sleep(0.005)
    return True


def is_of_the_user(pid: int) -> bool:
    """Tell if a process left behind is the cell's own doing.

    The resource tracker of multiprocessing (and joblib) always ends last: no oversight of the user's.
    """
    command = command_of(pid)
    return bool(command) and b"resource_tracker" not in command


@cache
def machine_bytes() -> int:
    """Memory of this machine, or of the container or batch job that we are in when that is less."""
    return int(min(psutil.virtual_memory().total, least_limit("memory")))


def least_limit(controller: Literal["memory", "pids"], root: Path = Path("/")) -> float:
    """The least limit of our cgroups and of those above them, in bytes or processes; without one it is infinite.

    In a container groups above its own are not there.
    """
    least, groups, older = math.inf, "", {"memory": "memory.limit_in_bytes"}
    with contextlib.suppress(OSError):
        groups = (root / "proc/self/cgroup").read_text()
    for _, controllers, own in (line.split(":", 2) for line in groups.splitlines()):
        if controllers not in ("", controller):  # version 2, or 1
            continue
        file = older.get(controllers, f"{controller}.max")
        for folder in (Path(own), *Path(own).parents):
            with contextlib.suppress(OSError, ValueError):  # ``max``: it sets none
                group = root / "sys/fs/cgroup" / controllers / folder.relative_to("/")
                least = min(least, int((group / file).read_text()))
    return least


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
        if is_readable(fd):
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
    name, where = name_of(pid), ""
    with contextlib.suppress(OSError):
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0 \n")
    return f"process {pid} ({name or 'gone'}{', in ' + where if where else ''})"
