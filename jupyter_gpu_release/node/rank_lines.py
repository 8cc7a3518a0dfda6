"""What connects a rank with its supervisor, and the supervisor's ends of it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from .frames import FrameReader, Kind
from .outgoing import Outgoing


@dataclass(frozen=True)
class RankLines:
    """The rank's ends: output and orders, the line to where ranks meet, and the file for its stack.

    ``synced`` counts the supervisor's answers to SYNC: an eventfd, since orders may come on ``sock`` at any time.
    """

    sock: socket.socket
    channel: socket.socket
    supervisor: int
    stack: int
    synced: int


class _SupervisorsEnd:
    """Never waits for the rank, which may be busy, interrupted, stopped or dead."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = FrameReader()
        self._outgoing = Outgoing(sock)

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    @property
    def is_behind(self) -> bool:
        """Whether the rank has not taken everything yet."""
        return bool(self._outgoing)

    def flush(self) -> None:
        """Hand over as much as the rank takes now."""
        self._outgoing.flush()


class RankLine(_SupervisorsEnd):
    """The supervisor's end of the rank's ``sock``."""

    def __init__(self, sock: socket.socket, synced: int) -> None:
        super().__init__(sock)
        self._synced = synced

    def read(self) -> list[tuple[Kind, bytes]] | None:
        """Frames that came since; None when there is nothing more to read now."""
        try:
            data = self._sock.recv(1 << 18)
        except OSError:
            return None
        return list(self._frames.feed(data)) if data else None

    def send(self, kind: Kind, body: bytes) -> None:
        """Say something."""
        self._outgoing.add(kind, body)
        self.flush()

    def answer_sync(self) -> None:
        """All that the rank said so far has been passed on."""
        os.eventfd_write(self._synced, 1)


class ChannelRelay(_SupervisorsEnd):
    """Passes frames on between the rank's ``channel`` and where ranks meet."""

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
        self._outgoing.add(Kind.MET, body)
        self.flush()
