"""The agent's side of its fork servers: start, replace when packages changed, one-off ones for ``--fresh``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from ..core.messages import AgentConfig
from ..errors import ClusterError
from . import preload, process
from .fork_server import ServerConfig

READY_S = 120.0
_SECRET = ("JUPYTER_GPU_TOKEN", "RAY_")
#: Ray sets these for its own workers; cells shall have the machine's cores
_NOT_FOR_CELLS = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONBREAKPOINT", "PYTHONUNBUFFERED")


class ForkServer:
    """One running fork server: its socket path, its process, what it had to say when ready."""

    def __init__(self, path: Path, popen: subprocess.Popen[bytes], status_fd: int) -> None:
        self.path = path
        self.notes: list[str] = []
        self._popen = popen
        self._status_fd = status_fd
        self._ready: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Process id of the fork server."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._popen.poll() is None

    async def ready(self) -> None:
        """Wait until it has preloaded; raises :class:`ClusterError` with its last words when it died instead."""
        if self._ready is None:
            self._ready = asyncio.create_task(self._read_status())
        await asyncio.shield(self._ready)

    async def _read_status(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        pipe = os.fdopen(self._status_fd, "rb", 0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            line = await asyncio.wait_for(reader.readline(), READY_S)
        except TimeoutError:
            line = b""
        finally:
            transport.close()
        if not line:
            raise ClusterError(
                f"the fork server on this node did not start: {self.last_words()}",
                mend="run `jupyter gpu doctor`; a library that hangs at import can leave the preload list",
            )
        self.notes = list(json.loads(line)["notes"])

    def last_words(self) -> str:
        """The end of its log, one line."""
        with contextlib.suppress(OSError):
            text = self.path.with_suffix(".log").read_text(errors="replace").strip()
            return text.splitlines()[-1] if text else "no message"
        return "no message"

    def retire(self) -> None:
        """Take no more orders; it ends when its last rank has."""
        if self.alive:
            self._popen.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """End it now; its supervisors notice and end their ranks."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()


class ForkServers:
    """Hands out the fork server for a run; all calls from the agent's event loop (its thread lives as the agent)."""

    def __init__(self, config: AgentConfig, node: str) -> None:
        self._config = config
        self._node = node
        self._current: ForkServer | None = None
        self._retired: list[ForkServer] = []
        self._stamp: object = None
        self._digest = ""
        self._names = list(config.preload) or list(preload.DEFAULT)

    @property
    def notes(self) -> list[str]:
        """What the current fork server reported (libraries that left the preload list)."""
        return self._current.notes if self._current else []

    def start(self) -> ForkServer:
        """Start the current fork server if there is none; returns at once (await its ``ready``)."""
        if self._current is None or not self._current.alive:
            self._stamp, self._digest = preload.folders_stamp(), preload.packages_digest()
            self._current = self._spawn(self._names)
        return self._current

    async def get(self, *, fresh: bool) -> ForkServer:
        """The fork server to use now, ready."""
        self._sweep()
        if fresh:
            server = self._spawn([], standby=0)
            self._retired.append(server)
        else:
            if self._packages_changed() and self._current is not None:
                old, self._current = self._current, None
                self._retired.append(old)
                old.retire()
            server = self.start()
        await server.ready()
        return server

    def done_with(self, server: ForkServer) -> None:
        """A run on ``server`` has ended; a one-off server ends with it."""
        if server is not self._current and server.alive:
            server.retire()
        self._sweep()

    def kill_all(self) -> None:
        """End every fork server."""
        for server in [*self._retired, *([self._current] if self._current else [])]:
            server.kill()

    def _sweep(self) -> None:
        for server in [server for server in self._retired if not server.alive]:
            self._retired.remove(server)
            for path in (server.path, server.path.with_suffix(".log")):
                path.unlink(missing_ok=True)

    def _packages_changed(self) -> bool:
        stamp = preload.folders_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        digest = preload.packages_digest()
        changed = digest != self._digest
        self._digest = digest
        return changed

    def _spawn(self, names: list[str], standby: int = 1) -> ForkServer:
        path = Path(self._config.runtime) / f"fs-{secrets.token_hex(4)}.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(64)
        status_read, status_write = os.pipe()
        server_config = ServerConfig(listener.fileno(), status_write, os.getpid(), names, standby=standby)
        argument = msgspec.json.encode(server_config).decode()
        with open(path.with_suffix(".log"), "wb", opener=_private) as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpu_release.node.fork_server", argument],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(), cwd="/",
                pass_fds=(listener.fileno(), status_write), start_new_session=True,
            )  # fmt: skip
        os.close(status_write)
        listener.close()
        return ForkServer(path, popen, status_read)

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_SECRET) and name not in _NOT_FOR_CELLS
        }
        markers = {process.CLUSTER_MARKER: self._config.cluster, process.NODE_MARKER: self._node}
        return {**kept, **markers, "PYTHONFAULTHANDLER": "1"}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
