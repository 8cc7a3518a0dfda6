"""The agent's side of its fork servers: start, replace when packages changed, one-off ones for ``--fresh``.

They are started by a thread of their own: where Python lies on a filesystem that hangs, that takes as long as this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path

import msgspec

from ...errors import ClusterError
from ...host import process_control
from ...host.background import BackgroundWork
from ...host.environment import for_cells, installer_variables
from ...protocol.config import UnixUser
from ...protocol.node import AgentConfig, ForkServerConfig
from ...settings.built_in import BUILT_IN
from .. import preload
from ..as_owner import command_as
from ..installed_packages import PackageWatch
from ..supervisor.agent_connection import Pair
from .fork_server import EarlyServer, ForkServer
from .prepared_servers import STANDBY, PreparedServers

log = logging.getLogger(__name__)
#: for its process to be there at all
START_S = 60.0
#: pairs that stand by: one more than the node has GPUs (that of a run which just ended is replaced in a quiet moment),
#: at most this
_MOST_STANDBY: int = BUILT_IN["standby_pairs"].default


_Start = Callable[[], subprocess.Popen[bytes]]


class _Starter:
    """One thread that starts processes. It lives as long as the agent, since they end with who has started them."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start_process(self, start: _Start) -> Future[subprocess.Popen[bytes]]:
        """Start a process; never blocks."""
        future: Future[subprocess.Popen[bytes]] = Future()
        self._asked.put((start, future))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="jgr-starting", daemon=True)
            self._thread.start()
        return future

    def _serve(self) -> None:
        while True:
            start, future = self._asked.get()
            if future.set_running_or_notify_cancel():  # else nobody waits for it any more
                try:
                    future.set_result(start())
                except Exception as error:  # noqa: BLE001 - for who waits; this thread may not end
                    future.set_exception(error)


def _kill_late(started: Future[subprocess.Popen[bytes]]) -> None:
    """Nobody waits any more for a process that is there only now."""
    if not started.cancelled() and started.exception() is None:
        started.result().kill()


class ForkServers:
    """Hands out the fork server for a run; all calls from the agent's event loop (its thread lives as the agent)."""

    def __init__(
        self,
        config: AgentConfig,
        node: str,
        *,
        gpus: int = 1,
        early: EarlyServer | None = None,
        environment: Path | None = None,
        owner: UnixUser | None = None,
    ) -> None:
        """``early``: one that was started before us; it is the first, if it is fit.

        ``environment``: folder of a virtual environment in whose interpreter they run; None: in ours.
        ``owner``: who they become before that interpreter starts, since its packages are this user's choice; None: they
        are ours.
        """
        self._owner = owner
        self._early = early
        self._home = environment
        self._python = str(environment / "bin" / "python") if environment is not None else sys.executable
        self._config = config
        self._node = node
        self._standby = min(max(gpus, 1) + 1, _MOST_STANDBY)
        self._current: ForkServer | None = None
        self._starter = _Starter()
        self._starting: asyncio.Task[ForkServer] | None = None
        self._later = BackgroundWork()
        self._retired: list[ForkServer] = []
        self._packages = PackageWatch()
        #: those with more libraries
        self.prepared = PreparedServers(
            self.current_server, self._bind, config.max_prepared, as_owners=config.as_owners
        )
        self._names = list(config.preload) or list(preload.DEFAULT)
        self._fatal: list[str] = []
        self._failures = 0
        #: why no cell can be started here just now; empty when it can
        self.trouble = ""
        if environment is None:
            for path in Path(config.runtime).glob(f"{self._prefix}*"):  # of an earlier agent of this node
                path.unlink(missing_ok=True)

    @property
    def notes(self) -> list[str]:
        """Reports of the current fork server (libraries that left the preload list)."""
        return self._current.notes if self._current else []

    async def start_server(self) -> ForkServer:
        """Start the current fork server if there is none; returns when its process is there (await its ``ready``)."""
        if self._current is not None and self._current.alive:
            return self._current
        if self._starting is None or self._starting.done():  # whoever waits for it shares its failure, too
            self._starting = asyncio.create_task(self._start_current())
        return await asyncio.shield(self._starting)

    async def _start_current(self) -> ForkServer:
        if self._current is not None:
            self._current.remove_files()
            self._current = None
        self.prepared.end_all()
        await self._packages.has_changed()
        server = self._current = self._take_early() or await self._spawn(self._names)
        server.prefork(self._standby)
        return server

    def _take_early(self) -> ForkServer | None:
        early, self._early = self._early, None
        if early is None:
            return None
        if not early.is_fit(self._environment()):
            early.kill()
            return None
        return ForkServer(early.path, early, early.line)

    async def current_server(self) -> ForkServer:
        """The current fork server, ready. One that dies as it preloads is started again, then without what it died of.

        Raises :class:`ClusterError` when none starts even with nothing preloaded.
        """
        while True:
            try:
                server = await self.start_server()
            except (ClusterError, OSError) as error:
                self.trouble = str(error)
                raise
            try:
                await server.ready()
            except ClusterError as error:
                if server is self._current:  # else somebody else has seen to it
                    self._after_failure(server, error)
            else:
                self._failures, self.trouble = 0, ""
                return server

    def start_soon(self) -> None:
        """Have one ready if none is; nobody waits for it."""
        self._later.spawn(self._start_unasked())

    async def _start_unasked(self) -> None:
        with contextlib.suppress(ClusterError, OSError):  # `trouble` says it
            await self.current_server()

    def _after_failure(self, server: ForkServer, error: ClusterError) -> None:
        log.warning("%s", error.message)
        self._failures += 1
        is_bare = set(self._names) <= set(self._fatal)
        if self._failures > 1 and not is_bare:  # the first time may have been an accident
            self._fatal += [server.importing] if server.importing else self._names
        server.kill()
        self._retired.append(server)
        self._current = None
        if self._failures > 1 and is_bare:
            self.trouble = error.message
            raise error

    async def ready_server(
        self, *, fresh: bool, needs: Sequence[str] = (), user: str = "", is_gang: bool = False
    ) -> ForkServer:
        """The fork server to use now for a cell of ``user`` that needs these modules, ready."""
        self._sweep()
        if fresh:
            server = await self._spawn([])
            self._retired.append(server)
        else:
            if await self._packages.has_changed() and self._current is not None:
                self.retire_all()
                self._fatal.clear()
            base = await self.current_server()
            server = self.prepared.find_server(needs, user, base, is_gang=is_gang) or base
        await server.ready()
        if not fresh:
            server.prefork(self._standby if server is self._current else STANDBY)
        return server

    @property
    def is_standing(self) -> bool:
        """Tell if a cell could be forked now."""
        return self._current is not None and self._current.alive and self._current.status.ready

    @property
    def has_processes(self) -> bool:
        """Tell if one of them runs, be it for a last rank."""
        self._sweep()
        is_starting = self._starting is not None and not self._starting.done()
        return is_starting or bool(self._retired) or (self._current is not None and self._current.alive)

    @property
    def memory_bytes(self) -> int:
        """Memory of their own that these processes have, each as it said when it was ready."""
        self._sweep()
        alive = [*self._retired, *([self._current] if self._current is not None and self._current.alive else [])]
        return sum(server.status.bytes for server in alive)

    def retire_all(self) -> None:
        """Let each end when its last rank has; the next run starts another."""
        self.prepared.end_all()
        if self._current is not None:
            old, self._current = self._current, None
            self._retired.append(old)
            old.retire()

    def release_server(self, server: ForkServer, pairs: Iterable[Pair] = ()) -> None:
        """A run on ``server`` has ended; a one-off server ends with it."""
        server.postpone_prefork()
        for pair in pairs:
            pair.close()
        if server is not self._current and server not in self.prepared and server.alive:
            server.retire()
        self._sweep()

    def kill_all(self) -> None:
        """End every fork server."""
        for task in self._later.tasks:
            task.cancel()
        self.prepared.kill_all()
        for server in [*self._retired, *([self._current] if self._current else [])]:
            server.kill()
            server.remove_files()

    def _sweep(self) -> None:
        for server in self._retired:
            server.end_if_overdue()
        for server in [server for server in self._retired if not server.alive]:
            self._retired.remove(server)
            server.remove_files()

    @property
    def _prefix(self) -> str:
        return f"fs-{self._node[:8]}-"

    async def _spawn(self, names: list[str]) -> ForkServer:
        """Raises :class:`ClusterError` when no process comes in time, and ``OSError`` when there can be none."""
        path, listener = self._bind()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        own = (listener.fileno(), theirs.fileno())
        server_config = ForkServerConfig(
            os.getpid(),
            names,
            fatal=self._fatal,
            listen_fd=own[0],
            line_fd=own[1],
            as_owners=self._config.as_owners and self._owner is None,
        )
        command = [self._python, "-m", "jupyter_gpu_release.node.fork_server"]
        command.append(msgspec.json.encode(server_config).decode())
        if self._owner is not None:
            command = command_as(self._owner, command, own)
        environment = self._environment()

        def start() -> subprocess.Popen[bytes]:
            with listener, theirs, open(path.with_suffix(".log"), "wb", opener=_private) as log:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd="/",
                    pass_fds=own,
                    start_new_session=True,
                )

        started, popen = self._starter.start_process(start), None
        try:
            popen = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(started)), START_S)
        except TimeoutError:
            raise ClusterError(
                f"{self._python} could not be started within {START_S:g} s",
                hint="does the filesystem that it lies on answer? `jupyter gpu doctor` looks at the node",
            ) from None
        finally:
            if popen is None:
                ours.close()
                started.add_done_callback(_kill_late)
        return ForkServer(path, popen, ours, self._owner.uid if self._owner is not None else None)

    def _bind(self) -> tuple[Path, socket.socket]:
        """A place of its own for a fork server to listen at."""
        path = Path(self._config.runtime) / f"{self._prefix}{secrets.token_hex(3)}.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(64)
        return path, listener

    def _environment(self) -> dict[str, str]:
        markers = {process_control.CLUSTER_MARKER: self._config.cluster, process_control.NODE_MARKER: self._node}
        markers |= installer_variables(self._config.environment_index, self._config.environment_wheels)
        found = for_cells(os.environ, markers, self._config.hash_seed)
        if self._home is not None:
            found |= {"VIRTUAL_ENV": str(self._home), "PATH": f"{self._home / 'bin'}:{found.get('PATH', os.defpath)}"}
        return found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
