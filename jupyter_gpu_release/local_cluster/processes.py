"""Tools for finding the processes that belong to a cluster, and for ending them all.

Three signs, because each fails somewhere: the environment marker (Ray's workers overwrite their environment
with their title), the daemon's session (a cell may call ``setsid``) and descent (lost when a parent dies).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from ..host.process_control import CLUSTER_MARKER, command_of, is_gone, is_persister, persisters
from ..host.processes import environment_of, has_open
from ..host.slurm import JOB_MODULE

#: the daemon's orders, in its runtime folder
PLAN_FILE = "cluster-daemon.json"
_DAEMONS = ("gcs_server", "raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
_TERM_GRACE_S = 3.0
#: one that writes nothing for so long cannot
_SPILL_STALLED_S = 15.0
_KILL_WAIT_S = 2.0


def marker_of(pid: int) -> str:
    """The cluster id in the environment of process ``pid``; empty when it has none or may not be read."""
    return environment_of(pid).get(CLUSTER_MARKER, "")


def daemon_alive(pid: int, cluster: str) -> bool:
    """Tell if ``pid`` is the daemon of ``cluster`` still, and not a process that got its number later."""
    return pid > 0 and not is_gone(pid) and marker_of(pid) == cluster


def cluster_processes(cluster: str, daemon_pid: int = 0, runtime: str = "") -> list[int]:
    """Ids of every living process of ``cluster`` except the caller, in their order."""
    return [process.pid for process in _members(cluster, daemon_pid, runtime)]


def marked_clusters() -> dict[str, list[int]]:
    """Cluster id → its processes that carry the marker, for all clusters whose processes we may see."""
    found: dict[str, list[int]] = {}
    for pid in psutil.pids():
        cluster = marker_of(pid)
        if cluster and pid != os.getpid() and not is_gone(pid):
            found.setdefault(cluster, []).append(pid)
    return found


def sweep(
    cluster: str, daemon_pid: int = 0, runtime: str = "", *, grace_s: float = _TERM_GRACE_S, head_only: bool = False
) -> int:
    """End everything of ``cluster``, also what was started meanwhile; returns how many processes were ended.

    ``head_only``: but for the nodes that jobs of a pool have on this machine.

    Ray's daemons go first and at once: they have nothing to save, and they would start the gateway and the
    agents again. The others (cells among them) get SIGTERM, and SIGKILL after ``grace_s``; results that are not
    durable yet are waited for while they are being written to the node's own disk.
    """
    ended: set[int] = set()  # one that takes long to die is found again
    for attempt in range(4):
        found = _members(cluster, daemon_pid, runtime)
        if head_only:
            lent = _of_pool_jobs(cluster)
            found = [process for process in found if process.pid not in lent]
        if not found:
            break
        ended.update(process.pid for process in found)
        end_processes(found, grace_s=grace_s if attempt == 0 else 0.0)
    return len(ended)


def end_processes(found: list[psutil.Process], *, grace_s: float = _TERM_GRACE_S) -> None:
    """End these, Ray's daemons first."""
    daemons = [process for process in found if _is_ray_daemon(process)]
    others = [process for process in found if process not in daemons]
    _signal(daemons, "kill")
    _signal(others, "terminate")
    _wait_spilled([process for process in others if is_persister(process.pid)])
    _signal(_wait_gone(others, grace_s), "kill")
    _wait_gone(found, _KILL_WAIT_S)


def keeps_results(cluster: str) -> bool:
    """Tell if a process of ``cluster`` is still writing results to the node's own disk."""
    return any(marker_of(pid) == cluster for pid in persisters())


def _wait_spilled(persisters: list[psutil.Process]) -> None:
    """Wait while they write."""
    written, since = -1, time.monotonic()
    while persisters and time.monotonic() - since < _SPILL_STALLED_S:
        persisters = _wait_gone(persisters, 0.1)
        now_written = sum(map(_written, persisters))
        if now_written != written:
            written, since = now_written, time.monotonic()


def _written(process: psutil.Process) -> int:
    try:
        return int(process.io_counters().write_chars)
    except psutil.Error:
        return 0


def reap_children(timeout_s: float) -> None:
    """Wait until this process has no children; what it leaves unreaped would stay where init reaps nothing."""
    deadline = time.monotonic() + timeout_s
    while psutil.Process().children() and time.monotonic() < deadline:
        _reap()
        time.sleep(0.01)


def _members(cluster: str, daemon_pid: int, runtime: str) -> list[psutil.Process]:
    everyone = list(psutil.process_iter())
    members = {process.pid: process for process in everyone if _is_marked(process.pid, cluster, runtime)}
    # The session's number alone proves nothing (after a reboot it may be a terminal's): it must hold a marked one.
    if daemon_pid > 0 and any(_session(pid) == daemon_pid for pid in members):
        members.update({process.pid: process for process in everyone if _session(process.pid) == daemon_pid})
    for process in list(members.values()):
        members.update({child.pid: child for child in descendants(process)})
    members.pop(os.getpid(), None)
    return [members[pid] for pid in sorted(members) if not is_gone(pid)]


def _of_pool_jobs(cluster: str) -> set[int]:
    """The processes of a pool's jobs on this machine: each job's first one reaps all that it has started."""
    own = [JOB_MODULE.encode(), cluster.encode()]
    commands = {process: command_of(process.pid).split(b"\0") for process in psutil.process_iter()}
    jobs = [process for process, words in commands.items() if words[2:5:2] == own]
    return {member.pid for job in jobs for member in [job, *descendants(job)]}


def _is_ray_daemon(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    program = Path(words[0]).name if words else ""
    return program in _DAEMONS or any(word.endswith("/ray/dashboard/dashboard.py") for word in words[1:3])


def _is_marked(pid: int, cluster: str, runtime: str) -> bool:
    return marker_of(pid) == cluster or (bool(runtime) and _is_ray_process_of(pid, runtime))


def _is_ray_process_of(pid: int, runtime: str) -> bool:
    """Tell if it is a Python process of Ray (its title replaced its environment) with a log in ``runtime``."""
    return command_of(pid).startswith(b"ray::") and has_open(pid, (runtime + "/",))


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """All processes below one; none when it is gone."""
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _signal(processes: Iterable[psutil.Process], method: str) -> None:
    for process in processes:
        try:
            getattr(process, method)()
        except psutil.Error:
            continue


def _wait_gone(processes: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Wait until all are gone (zombies count as gone) and return those that are not."""
    deadline = time.monotonic() + timeout_s
    while True:
        _reap()
        processes = [process for process in processes if process.is_running() and not is_gone(process.pid)]
        if not processes or time.monotonic() > deadline:
            return processes
        time.sleep(0.02)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def remove_folder(path: str | Path) -> None:
    """Remove a runtime folder in which processes that are just dying may still make files.

    The plan goes last: as long as it is there, the next start or stop finds the folder again.
    """
    folder = Path(path)
    for _ in range(20):
        if not folder.exists() or _is_removed(folder):
            return
        time.sleep(0.05)


def _is_removed(folder: Path) -> bool:
    try:
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != PLAN_FILE:
                entry.unlink(missing_ok=True)
        if [entry.name for entry in folder.iterdir()] in ([], [PLAN_FILE]):
            shutil.rmtree(folder)
    except OSError:
        return False
    return not folder.exists()
