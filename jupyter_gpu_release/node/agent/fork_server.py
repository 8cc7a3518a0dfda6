"""The agent's end of one fork server: its line, its pairs that stand by. Also of the one that was there before us.

On a cluster of one machine the cluster's daemon starts the first fork server beside Ray, before there is an agent: it
is found, looked at and taken over (:class:`EarlyServer`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ...errors import ClusterError
from ...host.process_control import ForeignProcess, command_of
from ...host.processes import environment_of
from ...protocol.node import ForkServerStatus, PrepareOrder
from ..supervisor.agent_connection import Pair, fork_pair

log = logging.getLogger(__name__)
READY_S = 120.0
#: a pair that is not there after this will never be
_PAIR_S = 60.0

#: so long after the latest order or end the next pair is forked, and so long is the pause between two
_QUIET_S, _PAUSE_S = 0.06, 0.01
#: so long after it a pair that stands by is told to warm up. That takes longer than to start a cell cold, so where
#: cells follow each other faster than this (as short trials of a sweep do), it would only take the cores from them
_WARM_QUIET_S = 0.2
#: with nothing to hand out the next order would wait for a fork: many short runs in a row leave no quiet moment
_EMPTY_QUIET_S = 0.015

#: for a retired one to end when its last cell has
_ENDS_S = 5.0

#: of one word of a fork server, which names all its modules; and of the end of its log
_MOST_SAID_BYTES, _LAST_BYTES = 8 << 20, 4096
_CREDENTIALS = struct.Struct("3i")
_LIMITS = ("NOFILE", "NPROC", "CORE", "STACK", "MEMLOCK", "AS", "DATA", "FSIZE", "SIGPENDING", "MSGQUEUE")


class EarlyServer(ForeignProcess):
    """A process that is no child of ours and ends with us all the same: it watches the line that we hold."""

    def __init__(self, path: Path, line: socket.socket, pid: int) -> None:
        super().__init__(pid)
        #: socket for orders
        self.path = path.with_suffix(".sock")
        self._line = line

    @classmethod
    def claim(cls, path: str) -> EarlyServer | None:
        """Take it over, if there is one that nobody has: it is found once."""
        line, control = socket.socket(socket.AF_UNIX), Path(f"{path}.ctl")
        line.setblocking(False)
        try:
            line.connect(str(control))
            control.unlink()
            pid, uid, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if uid == os.getuid():
                return cls(Path(path), line, pid)
        except OSError:  # there is none, or it has ended
            pass
        line.close()
        return None

    def is_fit(self, environment: Mapping[str, str]) -> bool:
        """Tell if it is what we would start ourselves; then it also has our limits from here on."""
        found = environment_of(self.pid)
        other = sorted(name for name in {*found, *environment} if found.get(name) != environment.get(name))
        program = command_of(self.pid).split(b"\0")[0].decode(errors="replace")
        if other or program != sys.executable:
            log.warning("the fork server that was started early is of no use here: %s", ", ".join(other) or program)
            return False
        self._give_limits()
        return True

    def _give_limits(self) -> None:
        """As if it were our child: Ray has set some for its workers."""
        for name in _LIMITS:
            kind = getattr(resource, f"RLIMIT_{name}")
            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(self.pid, kind, resource.getrlimit(kind))
        with contextlib.suppress(OSError):
            own = Path("/proc/self/oom_score_adj").read_text()
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(own)

    @property
    def line(self) -> socket.socket:
        """The line to it."""
        return self._line

    def kill(self) -> None:
        """End it now."""
        self._line.close()
        super().kill()


class ForkServer:
    """One running fork server: its socket path, its process, what it had to say when ready."""

    def __init__(
        self,
        path: Path,
        process: subprocess.Popen[bytes] | ForeignProcess | None,
        line: socket.socket,
        user: int | None = None,
    ) -> None:
        """``user``: whose processes it and its pairs are; None: ours."""
        self.path = path
        self._user = user
        self.notes: list[str] = []
        #: what it imports just now; empty before and after
        self.importing = ""
        #: what it said last; once it is ready, what it has
        self.status = ForkServerStatus()
        self.modules: frozenset[str] = frozenset()
        #: modules that those who stand by import, since they cannot be forked with them
        self.at_rest: list[str] = []
        #: None: it has not said yet which it is
        self.process = process
        self._line = line
        self._unread = b""
        self._ready: asyncio.Task[None] | None = None
        self._spares: deque[Pair] = deque()
        self._lent: list[Pair] = []
        self._used_at = self._left_at = self._retired_at = 0.0
        #: it takes no more orders
        self.is_retired = False
        self._filling: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Process id of the fork server."""
        return self.process.pid if self.process is not None else 0

    @property
    def alive(self) -> bool:
        """Tell if the process still runs."""
        return self.process is not None and self.process.poll() is None

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
                return self._lend(pair)
            pair.close()
        return self._lend(await self._connect())

    def _lend(self, pair: Pair) -> Pair:
        self._lent = [*(each for each in self._lent if not each.is_closed), pair]
        return pair

    def postpone_prefork(self) -> None:
        """A run has ended: whoever waits for its GPUs or its names wants the cores now."""
        self._left_at = time.monotonic()

    def prefork(self, count: int) -> None:
        """Have ``count`` pairs forked ahead, one at a time and in quiet moments: a starting cell gets the cores."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._fill(count))

    async def stand_by(self, limit_s: float) -> None:
        """Return when the first pair stands by, and was told to get warm."""
        self.prefork(1)
        if self._filling is not None:
            await asyncio.wait([self._filling], timeout=limit_s)

    async def _fill(self, count: int) -> None:
        with contextlib.suppress(OSError, ClusterError):
            await self.ready()
            while self.alive and not self.is_retired:
                cold = next((pair for pair in self._spares if not pair.is_warm), None)
                if len(self._spares) >= count and cold is None:
                    break
                due_s = self._due_at(count)
                if time.monotonic() < due_s:
                    await asyncio.sleep(min(due_s - time.monotonic(), _QUIET_S))
                    continue  # an order may have come meanwhile
                if len(self._spares) < count:
                    self._keep(await self._connect())
                elif cold is not None:
                    cold.warm_up(self.at_rest)
                await asyncio.sleep(_PAUSE_S)

    def _keep(self, pair: Pair) -> None:
        if self.is_retired:  # meanwhile
            pair.close()
        else:
            self._spares.append(pair)

    def _due_at(self, count: int) -> float:
        if not self._spares:
            return self._used_at + _EMPTY_QUIET_S
        return max(self._used_at, self._left_at) + (_QUIET_S if len(self._spares) < count else _WARM_QUIET_S)

    async def _connect(self) -> Pair:
        try:
            async with asyncio.timeout(_PAIR_S):
                return await fork_pair(str(self.path), 1 << 20, self._user)
        except TimeoutError:  # it hangs
            self.kill()
            raise ConnectionAbortedError("no process for the cell came in time") from None

    async def _read_status(self) -> None:
        try:
            async with asyncio.timeout(READY_S):
                while await self.hear() and not self.status.ready and not self.status.unfit:
                    self.importing = self.status.importing
        except TimeoutError:
            self.kill()  # it hangs
        if not self.status.ready:
            at = f" while it imported {self.importing}" if self.importing else ""
            raise ClusterError(
                f"the process that cells are forked from ended{at}: {self.last_log_line()}",
                hint="run `jupyter gpu doctor`; a library that cannot be imported there can leave the preload list",
            )
        self.notes = self.status.notes
        self.modules = frozenset(self.status.modules)

    async def hear(self) -> bool:
        """Wait for its next word, which is its ``status`` then; False: it has ended."""
        while b"\n" not in self._unread:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._line, 1 << 16)
            except OSError:
                data = b""
            if not data or len(self._unread) > _MOST_SAID_BYTES:
                return False
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            self.status = msgspec.json.decode(line, type=ForkServerStatus)
        except msgspec.MsgspecError:  # what it has loaded may be a user's, and speak for it
            return False
        return True

    def order_prepared(self, names: Iterable[str], listener: socket.socket, line: socket.socket) -> None:
        """Have it fork a server that imports more; the sockets are that one's. Raises ``OSError`` when it is gone."""
        order = msgspec.json.encode(PrepareOrder(list(names))) + b"\n"
        sent = socket.send_fds(self._line, [order], [listener.fileno(), line.fileno()])
        if sent < len(order):  # its buffer is full of orders that it does not read
            self.kill()
            raise ConnectionAbortedError("the process that cells are forked from does not answer")

    def last_log_line(self) -> str:
        """The end of its log, one line."""
        with contextlib.suppress(OSError), self.path.with_suffix(".log").open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LAST_BYTES))  # a user's process may have written it
            lines = log.read(_LAST_BYTES).decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else "no message"
        return "no message"

    def retire(self) -> None:
        """Take no more orders; it ends when its last rank has."""
        self.is_retired = True
        self._retired_at = self._retired_at or time.monotonic()
        while self._spares:
            self._spares.pop().close()
        if self.process is not None and self.alive:
            self.process.send_signal(signal.SIGUSR1)

    def end_if_overdue(self) -> None:
        """Kill a retired one of a user that has no cell any more, and has not ended: it may have been hindered."""
        if self._user is None or not self._retired_at or any(not pair.is_closed for pair in self._lent):
            return
        if time.monotonic() - max(self._retired_at, self._used_at, self._left_at) > _ENDS_S:
            self.kill()

    def remove_files(self) -> None:
        """Remove from the disk what the dead one left; a pair that comes only now is closed."""
        self.kill()
        self._line.close()
        for path in (self.path, self.path.with_suffix(".log"), self.path.with_suffix(".news")):
            path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it now; its supervisors notice and end their ranks."""
        self.is_retired = True  # nothing more stands by
        while self._spares:
            self._spares.pop().close()
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
