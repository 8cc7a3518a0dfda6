"""The fork server: a clean process with the heavy libraries imported, which then only forks.

Started by exec from the node agent with a listening socket and a status pipe as inherited descriptors. Each
connection carries one order and becomes the line between agent and supervisor. It never runs CUDA, OpenMP,
autograd or a thread of its own, and knows neither Ray nor gRPC.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time

import msgspec

from ..host import process_control
from ..serialization.process_state import log_settings
from . import preload as node_preload
from .rank.process import run_rank
from .rank.shell import RankShell, build_shell
from .rank.warmup import warm_up
from .supervisor.supervisor import supervise


class ServerConfig(msgspec.Struct, frozen=True):
    """Handed over as JSON in one argument (it holds no secret)."""

    listen_fd: int
    status_fd: int
    agent_pid: int
    preload: list[str]
    exclude: list[str] = msgspec.field(default_factory=list)
    #: earlier fork servers did not survive these
    fatal: list[str] = msgspec.field(default_factory=list)


def main() -> None:
    """Preload, prove by canary, report readiness, then fork on order until the agent is gone."""
    config = msgspec.json.decode(sys.argv[1], type=ServerConfig)
    process_control.die_with_parent(config.agent_pid, signal.SIGKILL)
    process_control.become_subreaper()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # -m put the working directory first; ranks get the notebook's folder there
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    began = time.monotonic()
    shell, notes = _warm_up(config)
    _report(config, {"ready": True, "notes": notes, "seconds": round(time.monotonic() - began, 3)})
    os.close(config.status_fd)
    _Server(socket.socket(fileno=config.listen_fd), shell).run()


def _warm_up(config: ServerConfig) -> tuple[RankShell, list[str]]:
    wanted = [
        name for name in config.preload if name.partition(".")[0] not in config.exclude and name not in config.fatal
    ]
    shell = build_shell()  # first: tqdm.auto, matplotlib and others look for a shell when they are imported
    with shell.builtin_trap:  # pandas asks for `get_ipython` once and for all
        failed = node_preload.import_libraries(wanted, lambda name: _report(config, {"importing": name}))
    _report(config, {"importing": ""})
    log_settings.watch_loggers()
    warm_up()
    gc.collect()
    bad = node_preload.fork_unsafe_libraries()
    if bad:  # an import cannot be undone: start over without them
        again = msgspec.structs.replace(config, exclude=[*config.exclude, *bad])
        arguments = [sys.executable, "-m", __spec__.name if __spec__ else __name__, msgspec.json.encode(again).decode()]
        for fd in (config.listen_fd, config.status_fd):
            os.set_inheritable(fd, True)
        os.execv(sys.executable, arguments)
    _forget_exit_handlers()
    gc.freeze()
    node_preload.use_huge_pages()
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


def _report(config: ServerConfig, status: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(config.status_fd, json.dumps(status).encode() + b"\n")


class _Server:
    """Accepts connections and forks a pair of supervisor and rank for each.

    The agent connects ahead of time (see :mod:`.agent.fork_servers`), so that a pair stands by when an order comes.
    """

    def __init__(self, listener: socket.socket, shell: RankShell) -> None:
        self._listener = listener
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
        while not (self._retired and not self._supervisors):
            for key, _ in selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 256)
                    self._reap()

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
            supervise(connection, lambda lines, journal: run_rank(lines, journal, self._shell))
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
