"""A command whose whole tree of processes is counted, and ended with it.

``python tests/harness/metered.py COMMAND…`` makes itself a *subreaper* (a process that inherits the orphans below it),
so nothing that the command starts escapes. The kernel adds the CPU time of each process that ended to its parent's, and
in the end to this program's, which the runner reads when it waits for it. Whatever is alive when the command has ended
is named and killed, and the exit status is 1.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

_SET_CHILD_SUBREAPER = 36
_TICKS_S = os.sysconf("SC_CLK_TCK")
#: in the command's environment: this program's process id
VARIABLE = "JUPYTER_GPU_METERED"
#: what the command has ended, or told to end, may take so long
_ENDS_WITHIN_S = 5.0


def cpu_s(root: int) -> float:
    """CPU seconds that process ``root`` and its descendants used so far, those included that have ended."""
    children, ticks = _tree()
    found, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        found += ticks.get(process, 0)
        waiting += children[process]
    return found / _TICKS_S


def _tree() -> tuple[defaultdict[int, list[int]], dict[int, int]]:
    """Each process's children, and its clock ticks with those of the children that it waited for."""
    children, ticks = defaultdict[int, list[int]](list), dict[int, int]()
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
        except OSError:  # it has ended: its parent counts it
            continue
        if words:
            children[int(words[1])].append(int(entry.name))
            ticks[int(entry.name)] = sum(map(int, words[11:15]))
    return children, ticks


def run(command: list[str]) -> int:
    """Run ``command`` to its end, and end what it leaves; returns its exit status."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    child = subprocess.Popen(command, env={**os.environ, VARIABLE: str(os.getpid())})

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while True:
        ended, status = os.wait()
        if ended == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            break
    return _end_what_is_left() or (child.returncode if child.returncode >= 0 else 128 - child.returncode)


def _end_what_is_left() -> int:
    """Wait for all that is below this process, and kill what stays."""
    deadline = time.monotonic() + _ENDS_WITHIN_S
    left = _reap()
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = _reap()
    for process in left:
        print(f"left behind, and killed: process {process} ({_command_of(process)})", flush=True)
    while left:  # what a killed one had started comes here next
        for process in left:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        left = _reap()
        if not left:
            return 1
    return 0


def _reap() -> list[int]:
    """Wait for the children that have ended; returns the others."""
    children = _tree()[0][os.getpid()]
    return [process for process in children if os.waitpid(process, os.WNOHANG)[0] == 0]


def _command_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:150]


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
