"""The rank: the forked process in which the cell runs, from its first breath to its end.

Before its end it finds out if it holds a GPU or a port: open or mapped device files, threads, sockets.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import NoReturn

from ...errors import ClusterError
from ...host import process_control
from ...protocol.wire import decode, encode
from ..ipc import frames
from ..ipc.frames import Kind, RankOrder
from ..ipc.lines import RankLines
from ..ipc.stack_dump import dump_on_signal
from ..ipc.text_journal import TextJournal
from ..preload import import_libraries
from ..supervisor import exit_reason
from ..values.settings import read_settings_ahead
from .cell import Rank, flush_open_files
from .interrupts import repeat_dropped_interrupts
from .left_threads import OURS
from .loop import CellLoop
from .output import OutputSender, OutStream, keep_order_with_subprocesses
from .shell import RankShell, connect_shell, use_inline_figures
from .warmup import warm_up

#: a process of more memory takes a while to end: its GPUs are given back when it is gone
_SOON_GONE_BYTES = 1 << 30
#: added to the priority of a process that only gives its memory back: nobody waits for it
_LAST = 10
#: of NVIDIA's and AMD's drivers (WSL has the second)
_DEVICES = ("/dev/nvidia", "/dev/dxg", "/dev/dri/", "/dev/kfd")


def run_rank(lines: RankLines, journal: TextJournal, shell: RankShell) -> NoReturn:
    """Body of the rank's process: warm up, wait for the order, carry it out. Never returns, never raises."""
    sock = lines.sock
    try:
        os.setpgid(0, 0)
        process_control.die_with_parent(lines.supervisor, signal.SIGKILL)
        dump_on_signal(lines.stack)
        signal.set_wakeup_fd(-1)
        repeat_dropped_interrupts()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with contextlib.suppress(OSError):  # the system's OOM killer shall take this one first
            Path("/proc/self/oom_score_adj").write_text("900")
        loop = CellLoop(shell)
        loop.warm_up()
        outlet = OutputSender(sock, journal, lines.synced, on_lost=_end_unheard)
        sys.stdout = sys.__stdout__ = OutStream(outlet, "stdout", 1)  # type: ignore[assignment, misc]
        sys.stderr = sys.__stderr__ = OutStream(outlet, "stderr", 2)  # type: ignore[assignment, misc]
        connect_shell(shell, outlet)
        keep_order_with_subprocesses(outlet)
        use_inline_figures(shell)
        _carry_out_order(outlet, lines, shell, loop)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a defect of ours: recorded in the run's log, the cell says that it died
        os.write(2, traceback.format_exc().encode())
    finally:  # whatever went wrong above: no second copy of the fork server's loop
        os._exit(70)


def _end_unheard() -> None:
    """The supervisor says why; what the cell has printed is in the journal."""
    os._exit(exit_reason.UNHEARD)


def _carry_out_order(outlet: OutputSender, lines: RankLines, shell: RankShell, loop: CellLoop) -> None:
    if (order := _await_order(outlet, lines.sock, shell)) is None:
        return
    if order.as_owner and not _becomes_owner(order, outlet, lines, loop):
        return
    # interrupts wait until the cell runs, inside the one place that handles them (node/rank/loop.py)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, shell.gate.note_interrupt)
    handlers = atexit._ncallbacks()
    Rank(order, outlet, lines, shell, loop).run_order()
    _leave(outlet, order, has_handlers=atexit._ncallbacks() > handlers)


def _await_order(outlet: OutputSender, sock: socket.socket, shell: RankShell) -> RankOrder | None:
    """Wait for the order, however long; in a quiet moment import, and touch the pages that moving values write to."""
    while True:
        outlet.send_frame(Kind.MARK, encode(process_control.anonymous_bytes(os.getpid())))
        if (frame := frames.receive_frame(sock)) is None:
            return None
        if frame[0] is Kind.ORDER:
            return decode(frame[1], RankOrder)
        if not select.select([sock], [], [], 0)[0]:  # else the order is here already
            with shell.builtin_trap:
                import_libraries(decode(frame[1], list[str]))
            warm_up()
            read_settings_ahead()


def _becomes_owner(order: RankOrder, outlet: OutputSender, lines: RankLines, loop: CellLoop) -> bool:
    """Become the run's owner; False: that is refused, and is the run's outcome."""
    from .owner import become_owner

    own = {lines.sock.fileno(), lines.channel.fileno(), lines.stack, lines.synced}
    try:
        if order.owner is None:
            raise ClusterError("the order names no owner for the cell to run as")
        become_owner(order.owner, own | outlet.descriptors | loop.descriptors, lines.supervisor)
    except ClusterError as error:
        refused = frames.died_outcome("error", type(error).__name__, error.message, code=error.code, hint=error.hint)
        outlet.send_frame(Kind.OUTCOME, encode(refused))
        return False
    return True


def _leave(outlet: OutputSender, order: RankOrder, *, has_handlers: bool) -> None:
    _end_idle_workers()
    with contextlib.suppress(BaseException):  # the cell's own atexit handlers
        atexit._run_exitfuncs()
    if has_handlers:  # what they wrote
        flush_open_files()
    may_hold = has_threads() if order.simulated else may_hold_gpu()
    if order.tells_leaving and _is_soon_gone() and not may_hold and not may_keep_port():
        outlet.flush()
        threading.excepthook = lambda _: None  # of threads of ours, which find their files closed
        # it may not look at its own files, or has no thread left: its end tells the same
        with contextlib.suppress(OSError, RuntimeError):
            process_control.close_files(but=outlet.descriptors)
            outlet.send_frame(Kind.LEAVING, wait=False)
            os.nice(_LAST)
    outlet.flush()


def _is_soon_gone() -> bool:
    return process_control.anonymous_bytes(os.getpid()) < _SOON_GONE_BYTES


def _end_idle_workers() -> None:
    """Joblib keeps its workers for the next call; their own way to end takes a second or two."""
    workers = [
        pid
        for pid in process_control.children_of(os.getpid())
        if b"popen_loky_posix" in process_control.command_of(pid)
    ]
    process_control.kill_each(workers)
    for pid in workers:
        process_control.wait_until_gone(pid, 0.1)


def may_hold_gpu() -> bool:
    """Tell if a device is open or mapped, or another thread of Python's could open one before the process ends."""
    if has_threads():
        return True
    try:
        if any(path.startswith(_DEVICES) for path in _open_files().values()):
            return True
        mapped = Path("/proc/self/maps").read_bytes()  # with large libraries: 4 ms
    except OSError:  # no descriptor is left, say
        return True
    return any(device.encode() in mapped for device in _DEVICES)


def has_threads() -> bool:
    """Tell if threads of the cell's are left, which may do anything; ``_thread`` begins some that have no name."""
    idents = {thread.ident for thread in threading.enumerate() if thread.is_alive()} | sys._current_frames().keys()
    return not idents <= {thread.ident for thread in _ours()}


def may_keep_port() -> bool:
    """Tell if a library's thread may wait at a port: that keeps it, although its descriptor is closed."""
    try:
        if len(os.listdir("/proc/self/task")) <= len(_ours()):
            return False
        return any(path.startswith("socket:") and _is_of_internet(fd) for fd, path in _open_files().items())
    except OSError:  # no descriptor is left, say
        return True


def _ours() -> list[threading.Thread]:
    """They know no device."""
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if thread is main or thread.name.startswith(OURS)]


def _open_files() -> dict[int, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    return found


def _is_of_internet(descriptor: int) -> bool:
    looked_at = socket.socket(fileno=descriptor)
    looked_at.detach()
    return looked_at.family in (socket.AF_INET, socket.AF_INET6)
