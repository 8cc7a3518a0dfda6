"""What connects a rank with its supervisor, and the supervisor's end of the line to the other ranks."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from .frames import FrameReader, Kind, pack


@dataclass(frozen=True)
class RankLines:
    """The rank's ends: output and orders, the line to where ranks meet, and the file for its stack."""

    sock: socket.socket
    channel: socket.socket
    supervisor: int
    stack: int


class ChannelRelay:
    """Passes frames on without ever waiting for the rank: it may be busy, interrupted or dead."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._frames = FrameReader()
        self._pending = bytearray()

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    @property
    def is_behind(self) -> bool:
        """Whether the rank has not taken everything yet."""
        return bool(self._pending)

    def read(self) -> list[bytes] | None:
        """Bodies of what the rank said; None at its end."""
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        return [body for _kind, body in self._frames.feed(data)] if data else None

    def send(self, body: bytes) -> None:
        """An answer for the rank."""
        self._pending += pack(Kind.MET, body)
        self.flush()

    def flush(self) -> None:
        """Hand over as much as the rank takes now."""
        while self._pending:
            try:
                sent = self._sock.send(self._pending)
            except BlockingIOError:
                return
            except OSError:
                self._pending.clear()
                return
            del self._pending[:sent]
