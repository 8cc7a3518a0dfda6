"""One object graph that a process on another node fetches out of this one's memory: nothing is written for it.

The process that has it listens, as ranks do for each other anyway, and sends it once to whoever shows the key, which
went with the offer over the gang's own line.
"""

from __future__ import annotations

import contextlib
import hmac
import mmap
import secrets
import socket
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from .memory_graph import places, views_of

_KEY_BYTES = 32
#: whoever connects shows the key at once, or is no rank
_KEY_S = 5.0
#: a transfer that gets nowhere for so long has failed; ``sendall`` counts the whole of what it is given: a step
_STUCK_S = 60.0
_STEP_BYTES = 8 << 20


class Offered(msgspec.Struct, frozen=True):
    """Where a graph can be fetched. ``lengths`` in bytes: the stream's, then the buffers'."""

    address: str
    port: int
    key: bytes
    lengths: list[int]


class Offer:
    """A graph for one taker, until it is closed; raises ``OSError`` when nothing can listen at ``address``."""

    def __init__(self, stream: bytes, buffers: Sequence[Any], address: str) -> None:
        self._views = views_of(stream, buffers)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        port: int = self._listener.getsockname()[1]
        self.offered = Offered(address, port, secrets.token_bytes(_KEY_BYTES), list(map(len, self._views)))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Offer:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends a wait for somebody to come, which close() does not
        self._thread.join(_KEY_S)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while not self._send_to(self._listener.accept()[0]):
                pass

    def _send_to(self, link: socket.socket) -> bool:
        """Returns whether this was the taker."""
        with link, contextlib.suppress(OSError):
            link.settimeout(_KEY_S)
            shown = bytearray(_KEY_BYTES)
            _receive(link, memoryview(shown))
            if not hmac.compare_digest(shown, self.offered.key):
                return False
            link.settimeout(_STUCK_S)
            for view in self._views:
                for begin in range(0, len(view), _STEP_BYTES):
                    link.sendall(view[begin : begin + _STEP_BYTES])
            return True
        return False


def fetch(where: Offered) -> tuple[bytes, list[memoryview]]:
    """Stream and buffers (writable, of this process alone); raises ``OSError`` when they do not come."""
    begins = places(where.lengths)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    whole = memoryview(mmap.mmap(-1, max(1, begins[-1]), flags=private))
    stream, *buffers = [whole[begin : begin + length] for begin, length in zip(begins, where.lengths, strict=False)]
    with socket.create_connection((where.address, where.port), timeout=_STUCK_S) as link:
        link.sendall(where.key)
        for part in (stream, *buffers):
            _receive(link, part)
    return bytes(stream), buffers


def _receive(link: socket.socket, into: memoryview) -> None:
    while into:
        got = link.recv_into(into)
        if not got:
            raise ConnectionResetError("the connection ended half-way")
        into = into[got:]
