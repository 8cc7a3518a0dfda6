"""Lease tasks on this node tell the agent their accelerators here, some hops sooner than through the gateway.

The agent also says which of Ray's workers stays for them (``broker/lease_worker.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..core.messages import decode
from ..core.node_messages import Granted, grant_socket, lease_worker_socket

_MOST_EARLY = 64


class LeaseWord:
    """``on_told`` takes in the accelerators of a run, and says whether the run is known here."""

    def __init__(self, runtime: str, node: str, on_told: Callable[[str, list[str]], bool]) -> None:
        self._on_told = on_told
        #: told of before the order came
        self._early: dict[str, list[str]] = {}
        path = Path(grant_socket(runtime, node))
        path.unlink(missing_ok=True)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.bind(str(path))
        path.chmod(0o600)
        asyncio.get_event_loop().add_reader(self._sock, self._hear)

    def early(self, run: str) -> list[str] | None:
        """The accelerators of a run whose order comes only now; None when they are not known yet."""
        return self._early.pop(run, None)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError, msgspec.MsgspecError):
            while True:
                told = decode(self._sock.recv(1 << 16), Granted)
                if not self._on_told(told.run, told.gpu_ids):
                    self._early = {**dict(list(self._early.items())[-_MOST_EARLY:]), told.run: told.gpu_ids}


class LeaseWorker:
    """Holds on to one worker process: it stays while this connection does, others end as Ray likes."""

    def __init__(self, runtime: str, node: str) -> None:
        self._line: socket.socket | None = None
        path = Path(lease_worker_socket(runtime, node))
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        asyncio.get_event_loop().add_reader(self._listener, self._take)

    @property
    def is_there(self) -> bool:
        """Whether a worker is held."""
        return self._line is not None

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            line, _ = self._listener.accept()
            if self._line is not None:
                line.close()
                return
            self._line = line
            asyncio.get_event_loop().add_reader(line, self._on_gone)

    def _on_gone(self) -> None:
        """It never says anything: it has ended."""
        if self._line is not None:
            asyncio.get_event_loop().remove_reader(self._line)
            self._line.close()
            self._line = None
