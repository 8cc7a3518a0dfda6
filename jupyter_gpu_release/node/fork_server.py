"""The fork server: a clean process with the heavy libraries imported, which then only forks.

Started by exec from the node agent with a listening socket and a status pipe as inherited descriptors. Each
connection carries one order and becomes the line between agent and supervisor. It never runs CUDA, OpenMP,
autograd or a thread of its own, and knows neither Ray nor gRPC.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from ..core.messages import decode
from . import frames, process
from .frames import Kind, RankOrder

if TYPE_CHECKING:
    from .shell import RankShell

_ORDER_LIMIT_S = 10.0


class ServerConfig(msgspec.Struct, frozen=True):
    """Handed over as JSON in one argument (it holds no secret)."""

    listen_fd: int
    status_fd: int
    agent_pid: int
    preload: list[str]
    exclude: list[str] = msgspec.field(default_factory=list)


def main() -> None:
    """Preload, prove by canary, report readiness, then fork on order until the agent is gone."""
    config = msgspec.json.decode(sys.argv[1], type=ServerConfig)
    process.die_with_parent(config.agent_pid, signal.SIGKILL)
    process.become_subreaper()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # -m put the working directory first; ranks get the notebook's folder there
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    began = time.monotonic()
    shell, notes = _warm_up(config)
    _report(config, {"ready": True, "notes": notes, "seconds": round(time.monotonic() - began, 3)})
    _serve(socket.socket(fileno=config.listen_fd), shell)


def _warm_up(config: ServerConfig) -> tuple[RankShell, list[str]]:
    from . import preload
    from .shell import build_shell

    wanted = [name for name in config.preload if name.partition(".")[0] not in config.exclude]
    failed = preload.import_all(wanted)
    shell = build_shell()
    from . import rank, values  # noqa: F401 - ranks shall find them imported

    _rehearse(shell)
    gc.collect()
    bad = preload.culprits()
    if bad:  # an import cannot be undone: start over without them
        again = msgspec.structs.replace(config, exclude=[*config.exclude, *bad])
        arguments = [sys.executable, "-m", __spec__.name if __spec__ else __name__, msgspec.json.encode(again).decode()]
        for fd in (config.listen_fd, config.status_fd):
            os.set_inheritable(fd, True)
        os.execv(sys.executable, arguments)
    gc.freeze()
    notes = [f"{name} could not be preloaded: {why}" for name, why in failed.items()]
    notes += [f"{name} does not work after a fork and was not preloaded" for name in config.exclude]
    return shell, notes


def _rehearse(shell: RankShell) -> None:
    """One empty load and collect in a forked child would be too late: do the lazy imports now."""
    from ..core.messages import CellPayload
    from .values import RankValues

    scratch: dict[str, object] = {"__name__": "__main__", "__builtins__": __builtins__}
    with contextlib.suppress(Exception):
        values = RankValues(scratch, CellPayload(source="x = 1"), b"", [], has_gpu=False)
        values.load()
        scratch["x"] = 1
        values.collect()


def _report(config: ServerConfig, status: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        os.write(config.status_fd, json.dumps(status).encode() + b"\n")
        os.close(config.status_fd)


def _serve(listener: socket.socket, shell: RankShell) -> None:
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    supervisors: set[int] = set()
    retired = False
    while not (retired and not supervisors):
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _address = listener.accept()
                pid = _take_order(connection, listener, selector, shell)
                connection.close()
                if pid is None:
                    retired = True
                    selector.unregister(listener)
                    listener.close()
                elif pid:
                    supervisors.add(pid)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 256)
                _reap(supervisors)


def _take_order(
    connection: socket.socket, listener: socket.socket, selector: selectors.BaseSelector, shell: RankShell
) -> int | None:
    """Fork a supervisor for the order on ``connection``: its pid, 0 for a bad order, None for RETIRE."""
    connection.settimeout(_ORDER_LIMIT_S)
    try:
        frame = frames.receive(connection)
        if frame is None:
            return 0
        kind, body = frame
        if kind is Kind.RETIRE:
            return None
        order = decode(body, RankOrder)
    except (OSError, msgspec.DecodeError, ValueError):
        return 0
    me = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        process.die_with_parent(me, signal.SIGTERM)
        listener.close()
        selector.close()
        _become_supervisor(order, connection, shell)
    finally:
        os._exit(71)


def _become_supervisor(order: RankOrder, connection: socket.socket, shell: RankShell) -> None:
    from .rank import run_rank
    from .supervisor import supervise

    def body(order: RankOrder, sock: socket.socket, supervisor: int) -> None:
        run_rank(order, sock, supervisor, shell)

    supervise(order, connection, body)  # type: ignore[arg-type]


def _reap(supervisors: set[int]) -> None:
    """Collect ended children; an orphan that came to us lost its supervisor and has no business to live."""
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not pid:
            break
        supervisors.discard(pid)
    process.kill_each(pid for pid in process.children_of(os.getpid()) if pid not in supervisors)


if __name__ == "__main__":
    main()
