"""The agent's side of its fork servers: start, replace when packages changed, one-off ones for ``--fresh``.

They are started by a thread of their own: where Python lies on a filesystem that hangs, that takes as long as this.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from ...errors import ClusterError
from ...host import process_control
from ...host.environment import for_cells
from ...protocol.node import AgentConfig, ForkServerConfig
from ...settings.built_in import BUILT_IN
from .. import preload
from ..installed_packages import PackageWatch
from ..supervisor.pair import Pair, fork_pair
from .early_server import EarlyServer

log = logging.getLogger(__name__)
READY_S = 120.0
#: for its process to be there at all
START_S = 60.0
#: a pair that is not there after this will never be
_PAIR_S = 60.0

#: pairs that stand by: one more than the node has GPUs (that of a run which just ended is replaced in a quiet moment),
#: at most this
_MOST_STANDBY: int = BUILT_IN["standby_pairs"].default
#: so long after the latest order or end the next pair is forked, and so long is the pause between two
_QUIET_S, _PAUSE_S = 0.06, 0.01
#: so long after it a pair that stands by is told to warm up. That takes longer than to start a cell cold, so where
#: cells follow each other faster than this, it would only take the cores from them
_WARM_QUIET_S = 0.12
#: with nothing to hand out the next order would wait for a fork: many short runs in a row leave no quiet moment
_EMPTY_QUIET_S = 0.015


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


class ForkServer:
    """One running fork server: its socket path, its process, what it had to say when ready."""

    def __init__(self, path: Path, popen: subprocess.Popen[bytes] | EarlyServer, status_fd: int) -> None:
        self.path = path
        self.notes: list[str] = []
        #: what it imports just now; empty before and after
        self.importing = ""
        self._popen = popen
        self._status_fd = status_fd
        self._ready: asyncio.Task[None] | None = None
        self._spares: deque[Pair] = deque()
        self._used_at = self._left_at = 0.0
        self._retired = False
        self._filling: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Process id of the fork server."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Tell if the process still runs."""
        return self._popen.poll() is None

    async def ready(self) -> None:
        """Wait until it has preloaded; raises :class:`ClusterError` with its last words when it died instead."""
        if self._ready is None:
            self._ready = asyncio.create_task(self._read_status())
        await asyncio.shield(self._ready)

    async def take_pair(self) -> Pair:
        """A pair of supervisor and rank that awaits its order."""
        self._used_at = time.monotonic()
        while self._spares:
            pair = self._spares.popleft()
            if pair.is_alive:
                return pair
            pair.close()
        return await self._connect()

    def postpone_prefork(self) -> None:
        """A run has ended: whoever waits for its GPUs or its names wants the cores now."""
        self._left_at = time.monotonic()

    def prefork(self, count: int) -> None:
        """Have ``count`` pairs forked ahead, one at a time and in quiet moments: a starting cell gets the cores."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._fill(count))

    async def _fill(self, count: int) -> None:
        with contextlib.suppress(OSError, ClusterError):
            await self.ready()
            while self.alive and not self._retired:
                cold = next((pair for pair in self._spares if not pair.is_warm), None)
                if len(self._spares) >= count and cold is None:
                    break
                due_s = self._due_at(count)
                if time.monotonic() < due_s:
                    await asyncio.sleep(min(due_s - time.monotonic(), _QUIET_S))
                    continue  # an order may have come meanwhile
                if len(self._spares) < count:
                    self._spares.append(await self._connect())
                elif cold is not None:
                    cold.warm_up()
                await asyncio.sleep(_PAUSE_S)

    def _due_at(self, count: int) -> float:
        if not self._spares:
            return self._used_at + _EMPTY_QUIET_S
        return max(self._used_at, self._left_at) + (_QUIET_S if len(self._spares) < count else _WARM_QUIET_S)

    async def _connect(self) -> Pair:
        try:
            async with asyncio.timeout(_PAIR_S):
                return await fork_pair(str(self.path), 1 << 20)
        except TimeoutError:  # it hangs
            self.kill()
            raise ConnectionAbortedError("no process for the cell came in time") from None

    async def _read_status(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        pipe = os.fdopen(self._status_fd, "rb", 0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(READY_S):
                while "ready" not in status and (line := await reader.readline()):
                    status = json.loads(line)
                    self.importing = status.get("importing", "")
        except TimeoutError:
            self.kill()  # it hangs
        finally:
            transport.close()
        if "ready" not in status:
            at = f" while it imported {self.importing}" if self.importing else ""
            raise ClusterError(
                f"the process that cells are forked from ended{at}: {self.last_log_line()}",
                hint="run `jupyter gpu doctor`; a library that cannot be imported there can leave the preload list",
            )
        self.notes = list(status["notes"])

    def last_log_line(self) -> str:
        """The end of its log, one line."""
        with contextlib.suppress(OSError):
            text = self.path.with_suffix(".log").read_text(errors="replace").strip()
            return text.splitlines()[-1] if text else "no message"
        return "no message"

    def retire(self) -> None:
        """Take no more orders; it ends when its last rank has."""
        self._retired = True
        while self._spares:
            self._spares.pop().close()
        if self.alive:
            self._popen.send_signal(signal.SIGUSR1)

    def remove_files(self) -> None:
        """Remove from the disk what the dead one left."""
        while self._spares:
            self._spares.pop().close()
        for path in (self.path, self.path.with_suffix(".log"), self.path.with_suffix(".news")):
            path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it now; its supervisors notice and end their ranks."""
        self._retired = True  # nothing more stands by
        while self._spares:
            self._spares.pop().close()
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()


class ForkServers:
    """Hands out the fork server for a run; all calls from the agent's event loop (its thread lives as the agent)."""

    def __init__(self, config: AgentConfig, node: str, *, gpus: int = 1, early: EarlyServer | None = None) -> None:
        """``early``: one that was started before us; it is the first, if it is fit."""
        self._early = early
        self._config = config
        self._node = node
        self._standby = min(max(gpus, 1) + 1, _MOST_STANDBY)
        self._current: ForkServer | None = None
        self._starter = _Starter()
        self._starting: asyncio.Task[ForkServer] | None = None
        self._retired: list[ForkServer] = []
        self._packages = PackageWatch()
        self._names = list(config.preload) or list(preload.DEFAULT)
        self._fatal: list[str] = []
        self._failures = 0
        #: why no cell can be started here just now; empty when it can
        self.trouble = ""
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
        return ForkServer(early.path, early, early.status_descriptor())

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

    async def ready_server(self, *, fresh: bool) -> ForkServer:
        """The fork server to use now, ready."""
        self._sweep()
        if fresh:
            server = await self._spawn([])
            self._retired.append(server)
        else:
            if await self._packages.has_changed() and self._current is not None:
                old, self._current = self._current, None
                self._retired.append(old)
                old.retire()
                self._fatal.clear()
            server = await self.current_server()
        await server.ready()
        if server is self._current:
            server.prefork(self._standby)
        return server

    def release_server(self, server: ForkServer, pairs: Iterable[Pair] = ()) -> None:
        """A run on ``server`` has ended; a one-off server ends with it."""
        server.postpone_prefork()
        for pair in pairs:
            pair.close()
        if server is not self._current and server.alive:
            server.retire()
        self._sweep()

    def kill_all(self) -> None:
        """End every fork server."""
        for server in [*self._retired, *([self._current] if self._current else [])]:
            server.kill()
            server.remove_files()

    def _sweep(self) -> None:
        for server in [server for server in self._retired if not server.alive]:
            self._retired.remove(server)
            server.remove_files()

    @property
    def _prefix(self) -> str:
        return f"fs-{self._node[:8]}-"

    async def _spawn(self, names: list[str]) -> ForkServer:
        """Raises :class:`ClusterError` when no process comes in time, and ``OSError`` when there can be none."""
        path = Path(self._config.runtime) / f"{self._prefix}{secrets.token_hex(3)}.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(64)
        status_read, status_write = os.pipe()
        server_config = ForkServerConfig(
            os.getpid(),
            names,
            fatal=self._fatal,
            listen_fd=listener.fileno(),
            status_fd=status_write,
            as_owners=self._config.as_owners,
        )
        argument = msgspec.json.encode(server_config).decode()
        environment = self._environment()

        def start() -> subprocess.Popen[bytes]:
            with listener, os.fdopen(status_write, "wb"), open(path.with_suffix(".log"), "wb", opener=_private) as log:
                return subprocess.Popen(
                    [sys.executable, "-m", "jupyter_gpu_release.node.fork_server", argument],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd="/",
                    pass_fds=(listener.fileno(), status_write),
                    start_new_session=True,
                )

        started, popen = self._starter.start_process(start), None
        try:
            popen = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(started)), START_S)
        except TimeoutError:
            raise ClusterError(
                f"{sys.executable} could not be started within {START_S:g} s",
                hint="does the filesystem that it lies on answer? `jupyter gpu doctor` looks at the node",
            ) from None
        finally:
            if popen is None:
                os.close(status_read)
                started.add_done_callback(_kill_late)
        return ForkServer(path, popen, status_read)

    def _environment(self) -> dict[str, str]:
        markers = {process_control.CLUSTER_MARKER: self._config.cluster, process_control.NODE_MARKER: self._node}
        return for_cells(os.environ, markers, self._config.hash_seed)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
