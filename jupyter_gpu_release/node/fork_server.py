"""The fork server: a clean process with the heavy libraries imported, which then only forks.

Started by exec from the node agent with a listening socket and a line to the agent as inherited descriptors. On a
cluster of one machine the first one is started by the cluster's daemon, beside Ray; the agent takes it over. Each
connection carries one order and becomes the line between agent and supervisor. On the line come orders for *prepared*
servers: forks of this one that import more, for the cells that need it, and then fork as it does. It never runs CUDA,
OpenMP, autograd or a thread of its own, and knows neither Ray nor gRPC.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
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

from ..adapters.stdlib import log_settings, thread_locals
from ..host import process_control
from ..protocol.node import ForkServerConfig, ForkServerStatus, PrepareOrder
from . import preload as node_preload
from .import_witness import ImportWitness
from .rank.process import run_rank
from .rank.shell import RankShell, build_shell
from .rank.warmup import warm_up
from .supervisor.supervisor import supervise

#: a fork server for which no agent has come by then ends
_UNCLAIMED_S = 180.0


class _Agent:
    """The line to the agent: it hears how far this process is, and asks for prepared servers.

    The first fork server of a cluster may be there before the agent, which connects to it. It then hears all, and from
    then on this process ends with the agent, no longer with the cluster's daemon.
    """

    def __init__(self, line: int = -1, early: str = "") -> None:
        """``line``: a socket that the agent has made; ``early``: where an agent that is still to come finds one."""
        self._unsent = b""
        self._news = f"{early}.news" if early else ""
        self.line: socket.socket | None = None if early else socket.socket(fileno=line)
        self.listener: socket.socket | None = _listen(f"{early}.ctl") if early else None

    def report(self, status: ForkServerStatus) -> None:
        """Say what happens, once there is somebody; whoever starts the cluster reads the latest in a file."""
        line = msgspec.json.encode(status)
        if self._news:
            with contextlib.suppress(OSError), open(self._news, "wb") as file:
                file.write(line)
        self._unsent += line + b"\n"
        self.take()

    def take(self, wait_s: float = 0.0) -> None:
        """See whether the agent has come."""
        if self.line is None and self.listener is not None:
            if not select.select([self.listener], [], [], wait_s)[0]:
                return
            self.line, _ = self.listener.accept()
            process_control.outlive_parent()
        if self.line is not None:
            with contextlib.suppress(OSError):  # nobody listens any more
                self.line.sendall(self._unsent)
                self._unsent = b""

    def read_order(self) -> tuple[PrepareOrder, list[int]] | None:
        """An order, with the descriptors that come with it; None: the agent is gone."""
        assert self.line is not None
        data, fds = b"", list[int]()
        while not data.endswith(b"\n"):
            piece, more, _flags, _address = socket.recv_fds(self.line, 1 << 16, 2)
            if not piece:
                return None
            data += piece
            fds += more
        return msgspec.json.decode(data, type=PrepareOrder), fds

    def close(self) -> None:
        """Let go of the sockets (in a fork)."""
        for sock in (self.listener, self.line):
            if sock is not None:
                sock.close()


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
    agent = _Agent(config.line_fd, config.early)
    listener = _listen(f"{config.early}.sock") if config.early else socket.socket(fileno=config.listen_fd)
    process_control.become_subreaper()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # -m put the working directory first; ranks get the notebook's folder there
    sys.path[:] = [entry for entry in sys.path if entry not in ("", os.getcwd())]
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    began = time.monotonic()
    shell, notes = _warm_up(config, agent.report)
    seconds = round(time.monotonic() - began, 3)
    agent.report(_ready(notes, seconds))
    _Server(listener, shell, agent).run()


def _ready(notes: list[str], seconds: float, ask_for_rank: list[str] | None = None) -> ForkServerStatus:
    """The last word before orders are taken."""
    return ForkServerStatus(
        ready=True,
        notes=notes,
        modules=sorted(sys.modules),
        seconds=seconds,
        bytes=process_control.private_bytes(os.getpid()),
        ask_for_rank=ask_for_rank or [],
    )


def _warm_up(config: ForkServerConfig, report: Callable[[ForkServerStatus], None]) -> tuple[RankShell, list[str]]:
    names = config.preload if config.preload or not config.early else node_preload.DEFAULT
    wanted = [name for name in names if name.partition(".")[0] not in config.exclude and name not in config.fatal]
    gc.disable()  # it would take a second, for the 2 MB of 490 that nothing needs any more
    shell = build_shell()  # first: tqdm.auto, matplotlib and others look for a shell when they are imported
    with shell.builtin_trap:  # pandas asks for `get_ipython` once and for all
        failed = node_preload.import_libraries(wanted, lambda name: report(ForkServerStatus(name)))
    report(ForkServerStatus())
    log_settings.watch_loggers()
    thread_locals.find_holders()
    if config.as_owners:
        importlib.import_module(".rank.owner", __package__)  # a rank would import it while its cell waits
    bad = _make_forkable()
    if bad and config.early:
        sys.exit(f"{', '.join(bad)}: not after a fork")  # the agent starts one without
    if bad:  # an import cannot be undone: start over without them
        again = msgspec.structs.replace(config, exclude=[*config.exclude, *bad])
        arguments = [sys.executable, "-m", __spec__.name if __spec__ else __name__, msgspec.json.encode(again).decode()]
        for fd in (config.listen_fd, config.line_fd):
            os.set_inheritable(fd, True)
        os.execv(sys.executable, arguments)
    notes = [f"{name} could not be preloaded: {why}" for name, why in failed.items()]
    notes += [f"{name} does not work after a fork and was not preloaded" for name in config.exclude]
    notes += [f"{name} was not preloaded: the process ended while it was being imported" for name in config.fatal]
    return shell, notes


def _make_forkable() -> list[str]:
    """Make ready to be forked what was imported; returns libraries that do not work then."""
    warm_up()
    _forget_exit_handlers()
    gc.freeze()
    bad = node_preload.fork_unsafe_libraries(meanwhile=node_preload.use_huge_pages)
    gc.enable()
    return bad


def _serve_prepared(order: PrepareOrder, agent: _Agent, listener: socket.socket, shell: RankShell) -> None:
    """Import more in a fork of a fork server, then be one, too. What cannot be imported ahead is said: then this ends.

    The agent asks again without it, since an import cannot be undone.
    """
    process_control.become_subreaper()
    agent.report(ForkServerStatus(pid=os.getpid()))
    gc.disable()
    began = time.monotonic()
    with shell.builtin_trap, ImportWitness() as witness:
        failed = node_preload.import_libraries(
            order.names, lambda name: agent.report(ForkServerStatus(name)), witness.note_import
        )
    unfit = witness.unfit | dict.fromkeys(failed, "")
    if not unfit and (bad := _make_forkable()):
        unfit = dict.fromkeys(bad, "it does not work after a fork")
    if unfit:
        agent.report(ForkServerStatus(unfit=unfit))
        return
    agent.report(_ready([], round(time.monotonic() - began, 3), witness.ask_for_rank))
    _Server(listener, shell, agent).run()


def _forget_exit_handlers() -> None:
    """Ranks shall run only the handlers that their cell registers; the preloaded libraries' take 50 ms."""
    atexit._clear()
    if "multiprocessing.util" in sys.modules:  # its temporary folders belong to the cell
        from multiprocessing import util

        atexit.register(util._exit_function)  # type: ignore[attr-defined]


class _Server:
    """Accepts connections and forks a pair of supervisor and rank for each; on order a server with more libraries.

    The agent connects ahead of time (see :mod:`.agent.fork_servers`), so that a pair stands by when an order comes.
    """

    def __init__(self, listener: socket.socket, shell: RankShell, agent: _Agent) -> None:
        self._listener = listener
        self._agent = agent
        self._shell = shell
        #: supervisors and prepared servers
        self._children: set[int] = set()
        self._retired = False
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)

    def run(self) -> None:
        """Serve until retired and the last child has ended (or the agent dies, which kills this process)."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGUSR1, self._on_retire)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._agent.take(_UNCLAIMED_S)
        if self._agent.line is None:
            return
        selector = selectors.DefaultSelector()
        for readable in (self._listener, self._agent.line, self._wake_read):
            selector.register(readable, selectors.EVENT_READ)
        while not (self._retired and not self._children):
            for key, _ in selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._agent.line:
                    self._obey()
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

    def _obey(self) -> None:
        """Fork a server that has more libraries, with sockets of its own."""
        order = self._agent.read_order()
        if order is None:
            os.kill(os.getpid(), signal.SIGKILL)  # the agent is gone: as with one that is its parent
            return
        listen_fd, line_fd = order[1]
        listener, line = socket.socket(fileno=listen_fd), _Agent(line_fd)
        if not self._retired:
            self._fork(signal.SIGKILL, lambda: _serve_prepared(order[0], line, listener, self._shell))
        listener.close()
        line.close()

    def _fork_pair(self, connection: socket.socket) -> None:
        self._fork(
            signal.SIGTERM, lambda: supervise(connection, lambda lines, journal: run_rank(lines, journal, self._shell))
        )

    def _fork(self, at_our_end: signal.Signals, body: Callable[[], None]) -> None:
        """Fork a child that does ``body`` and ends; it gets the signal when this process ends."""
        me = os.getpid()
        pid = os.fork()
        if pid:
            self._children.add(pid)
            return
        code = 71
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            process_control.die_with_parent(me, at_our_end)
            self._listener.close()
            for fd in (self._wake_read, self._wake_write):
                os.close(fd)
            self._agent.close()
            body()
            code = 0
        except BaseException:  # noqa: BLE001 - a defect of ours: recorded in the fork server's log, the cell is lost
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    def _reap(self) -> None:
        """Collect ended children; an orphan that came to us lost its supervisor and has no business to live."""
        while True:
            try:
                pid, _status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            self._children.discard(pid)
        strangers = [pid for pid in process_control.children_of(os.getpid()) if pid not in self._children]
        process_control.kill_each(pid for pid in strangers if not process_control.is_persister(pid))


if __name__ == "__main__":
    main()
