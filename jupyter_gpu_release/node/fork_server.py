"""The fork server: a clean process with the heavy libraries imported, which then only forks.

Started by exec from the node agent with a listening socket and a status pipe as inherited descriptors. On a cluster of
one machine the first one is started by the cluster's daemon, beside Ray; the agent takes it over. Each connection
carries one order and becomes the line between agent and supervisor. It never runs CUDA, OpenMP, autograd or a thread
of its own, and knows neither Ray nor gRPC.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable

import msgspec

from ..adapters.stdlib import log_settings
from ..host import process_control
from ..protocol.node import ForkServerConfig
from . import preload as node_preload
from .rank.process import run_rank
from .rank.shell import RankShell, build_shell
from .rank.warmup import warm_up
from .supervisor.supervisor import supervise

#: a fork server for which no agent has come by then ends
_UNCLAIMED_S = 180.0


class _StatusPipe:
    """The way to the agent that has started this process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def report(self, status: dict[str, object]) -> None:
        """Say what happens."""
        with contextlib.suppress(OSError):  # nobody listens any more
            os.write(self._descriptor, json.dumps(status).encode() + b"\n")

    def close(self) -> None:
        """Nothing more is said."""
        os.close(self._descriptor)


class _EarlyStatus:
    """The way to an agent that is still to come: it connects, hears all, and holds on to the connection.

    From then on this process ends with the agent, no longer with the cluster's daemon.
    """

    def __init__(self, path: str) -> None:
        self._unsent = b""
        self._news = f"{path}.news"
        self.line: socket.socket | None = None
        self.listener = _listen(f"{path}.ctl")
        self.listener.setblocking(False)

    def report(self, status: dict[str, object]) -> None:
        """Say what happens, once there is somebody; whoever starts the cluster reads the latest in a file."""
        line = json.dumps(status).encode()
        with contextlib.suppress(OSError), open(self._news, "wb") as file:
            file.write(line)
        self._unsent += line + b"\n"
        self.take()

    def take(self) -> None:
        """See whether the agent has come."""
        if self.line is None:
            try:
                self.line, _ = self.listener.accept()
            except BlockingIOError:
                return
            process_control.outlive_parent()
        with contextlib.suppress(OSError):
            self.line.sendall(self._unsent)
            self._unsent = b""

    def close(self) -> None:
        """Let go of the sockets (in a fork)."""
        self.listener.close()
        if self.line is not None:
            self.line.close()


def _listen(path: str) -> socket.socket:
    """A socket at ``path``: once it is seen there, it can be connected to."""
    listener, made = socket.socket(socket.AF_UNIX), f"{path}.new"
    listener.bind(made)
    os.chmod(made, 0o600)
    listener.listen(64)
    os.rename(made, path)
    return listener


def main() -> None:
    """Preload, prove by canary, report readiness, then fork on order until the agent is gone."""
    config = msgspec.json.decode(sys.argv[1], type=ForkServerConfig)
    process_control.die_with_parent(config.parent_pid, signal.SIGKILL)
    early = _EarlyStatus(config.early) if config.early else None
    status = early or _StatusPipe(config.status_fd)
    listener = socket.socket(fileno=config.listen_fd) if early is None else _listen(f"{config.early}.sock")
    process_control.become_subreaper()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # -m put the working directory first; ranks get the notebook's folder there
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    began = time.monotonic()
    shell, notes = _warm_up(config, status.report)
    status.report({"ready": True, "notes": notes, "seconds": round(time.monotonic() - began, 3)})
    if early is None:
        status.close()
    _Server(listener, shell, early).run()


def _warm_up(config: ForkServerConfig, report: Callable[[dict[str, object]], None]) -> tuple[RankShell, list[str]]:
    names = config.preload if config.preload or not config.early else node_preload.DEFAULT
    wanted = [name for name in names if name.partition(".")[0] not in config.exclude and name not in config.fatal]
    gc.disable()  # it would take a second, for the 2 MB of 490 that nothing needs any more
    shell = build_shell()  # first: tqdm.auto, matplotlib and others look for a shell when they are imported
    with shell.builtin_trap:  # pandas asks for `get_ipython` once and for all
        failed = node_preload.import_libraries(wanted, lambda name: report({"importing": name}))
    report({"importing": ""})
    log_settings.watch_loggers()
    warm_up()
    if config.as_owners:
        importlib.import_module(".rank.owner", __package__)  # a rank would import it while its cell waits
    _forget_exit_handlers()
    gc.freeze()
    bad = node_preload.fork_unsafe_libraries(meanwhile=node_preload.use_huge_pages)
    if bad and config.early:
        sys.exit(f"{', '.join(bad)}: not after a fork")  # the agent starts one without
    if bad:  # an import cannot be undone: start over without them
        again = msgspec.structs.replace(config, exclude=[*config.exclude, *bad])
        arguments = [sys.executable, "-m", __spec__.name if __spec__ else __name__, msgspec.json.encode(again).decode()]
        for fd in (config.listen_fd, config.status_fd):
            os.set_inheritable(fd, True)
        os.execv(sys.executable, arguments)
    gc.enable()
    notes = [f"{name} could not be preloaded: {why}" for name, why in failed.items()]
    notes += [f"{name} does not work after a fork and was not preloaded" for name in config.exclude]
    notes += [f"{name} was not preloaded: the process ended while it was being imported" for name in config.fatal]
    return shell, notes


def _forget_exit_handlers() -> None:
    """Ranks shall run only the handlers that their cell registers; the preloaded libraries' take 50 ms."""
    atexit._clear()
    if "multiprocessing.util" in sys.modules:  # its temporary folders belong to the cell
        from multiprocessing import util

        atexit.register(util._exit_function)  # type: ignore[attr-defined]


class _Server:
    """Accepts connections and forks a pair of supervisor and rank for each.

    The agent connects ahead of time (see :mod:`.agent.fork_servers`), so that a pair stands by when an order comes.
    """

    def __init__(self, listener: socket.socket, shell: RankShell, early: _EarlyStatus | None) -> None:
        self._listener = listener
        self._early = early
        self._shell = shell
        self._supervisors: set[int] = set()
        self._retired = False
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)

    def run(self) -> None:
        """Serve until retired and the last pair has ended (or the agent dies, which kills this process)."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGUSR1, self._on_retire)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        selector.register(self._wake_read, selectors.EVENT_READ)
        if self._early is not None and not self._wait_for_agent(self._early, selector):
            return
        while not (self._retired and not self._supervisors):
            for key, _ in selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif self._early is not None and key.fileobj is self._early.line:
                    os.kill(os.getpid(), signal.SIGKILL)  # the agent is gone: as with one that is its parent
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 256)
                    self._reap()

    def _wait_for_agent(self, early: _EarlyStatus, selector: selectors.BaseSelector) -> bool:
        """Return once an agent holds the line; False when none comes."""
        if early.line is None:
            select.select([early.listener], [], [], _UNCLAIMED_S)
            early.take()
        if early.line is not None:
            selector.register(early.line, selectors.EVENT_READ)
        return early.line is not None

    def _on_retire(self, *_: object) -> None:
        self._retired = True

    def _accept(self) -> None:
        connection, _address = self._listener.accept()
        if not self._retired:
            self._fork_pair(connection)
        connection.close()

    def _fork_pair(self, connection: socket.socket) -> None:
        me = os.getpid()
        pid = os.fork()
        if pid:
            self._supervisors.add(pid)
            return
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            process_control.die_with_parent(me, signal.SIGTERM)
            self._listener.close()
            for fd in (self._wake_read, self._wake_write):
                os.close(fd)
            if self._early is not None:
                self._early.close()
            supervise(connection, lambda lines, journal: run_rank(lines, journal, self._shell))
        except BaseException:  # noqa: BLE001 - a defect of ours: recorded in the fork server's log, the cell is lost
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(71)

    def _reap(self) -> None:
        """Collect ended children; an orphan that came to us lost its supervisor and has no business to live."""
        while True:
            try:
                pid, _status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            self._supervisors.discard(pid)
        strangers = [pid for pid in process_control.children_of(os.getpid()) if pid not in self._supervisors]
        process_control.kill_each(pid for pid in strangers if not process_control.is_persister(pid))


if __name__ == "__main__":
    main()
