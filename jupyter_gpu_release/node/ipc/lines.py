"""Non-blocking socket ends of the supervisor, outgoing frames."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from .frames import FrameReader, Kind, pack_frame
from .notice import Notice


class SendBuffer:
    """Buffer for what the other side of ``sock`` does not take yet."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._waiting = bytearray()
        #: the other side is gone; what is said to it is dropped
        self.is_gone = False

    def __len__(self) -> int:
        """Bytes that the other side has not taken yet."""
        return len(self._waiting)

    def add_frame(self, kind: Kind, body: bytes = b"") -> None:
        """Say something, with the next :meth:`flush`."""
        if not self.is_gone:
            self._waiting += pack_frame(kind, body)

    def flush(self, wait_s: float = 0.0) -> None:
        """Hand over as much as the other side takes now, or within ``wait_s`` (``inf``: all, unless it goes)."""
        deadline = time.monotonic() + wait_s
        while self._waiting:
            try:
                del self._waiting[: self._sock.send(self._waiting)]
            except BlockingIOError:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return
                select.select([], [self._sock], [], None if left_s == math.inf else left_s)
            except OSError:
                self.discard_frames()

    def discard_frames(self) -> None:
        """The other side is gone."""
        self.is_gone = True
        self._waiting.clear()


@dataclass(frozen=True)
class RankLines:
    """The rank's ends: output and orders, the line to where ranks meet, and the file for its stack.

    ``synced`` counts the supervisor's answers to SYNC: an eventfd, since answers may come on ``sock`` at any time.
    ``packages``: folder for what its cell installs, which the supervisor removes.
    """

    sock: socket.socket
    channel: socket.socket
    supervisor: int
    stack: int
    synced: int
    notice: Notice
    packages: str


class _SupervisorsEnd:
    """Never waits for the rank, which may be busy, interrupted, stopped or dead."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = FrameReader()
        self._outgoing = SendBuffer(sock)

    def fileno(self) -> int:
        """File descriptor, for selectors."""
        return self._sock.fileno()

    @property
    def is_behind(self) -> bool:
        """Tell if the rank has not taken everything yet."""
        return bool(self._outgoing)

    def flush(self) -> None:
        """Hand over as much as the rank takes now."""
        self._outgoing.flush()


class RankLine(_SupervisorsEnd):
    """The supervisor's end of the rank's ``sock``."""

    def __init__(self, sock: socket.socket, synced: int) -> None:
        super().__init__(sock)
        self._synced = synced
        #: no process has the other end any more: the rank ends, or has closed it
        self.is_closed = False

    def read_frames(self) -> list[tuple[Kind, bytes]] | None:
        """Frames that came since; None when there is nothing more to read now."""
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        self.is_closed = self.is_closed or not data
        return list(self._frames.feed(data)) if data else None

    def send_frame(self, kind: Kind, body: bytes) -> None:
        """Say something."""
        self._outgoing.add_frame(kind, body)
        self.flush()

    def confirm_sync(self) -> None:
        """All that the rank said so far has been passed on."""
        os.eventfd_write(self._synced, 1)


class ChannelRelay(_SupervisorsEnd):
    """Passes frames on between the rank's ``channel`` and where ranks meet."""

    def read_calls(self) -> list[bytes] | None:
        """Bodies of what the rank said; None at its end."""
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        return [body for _kind, body in self._frames.feed(data)] if data else None

    def send_reply(self, body: bytes) -> None:
        """An answer for the rank."""
        self._outgoing.add_frame(Kind.MET, body)
        self.flush()


class AgentLine:
    """Never waits for the agent, except in :meth:`flush` when asked to."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = FrameReader()
        self._outgoing = SendBuffer(sock)
        #: came together with an order
        self._early: list[tuple[Kind, bytes]] = []

    def fileno(self) -> int:
        """File descriptor, for selectors."""
        return self._sock.fileno()

    @property
    def backlog_bytes(self) -> int:
        """Number of bytes that the agent has not taken yet."""
        return len(self._outgoing)

    def await_order(self, wake: int, is_alive: Callable[[], bool], on_warm_up: Callable[[bytes], None]) -> bytes | None:
        """Wait for an order, however long; None when none will come, or nobody is alive to carry it out.

        ``wake`` can be read when that may have changed. ``on_warm_up`` is called when the agent has a quiet moment.
        """
        while is_alive():
            ready, _, _ = select.select([self.fileno(), wake], [], [])
            if wake in ready:
                os.read(wake, 64)
            said = self.read_frames()
            if said is None:
                return None
            for number, (kind, body) in enumerate(said):
                if kind is Kind.WARM_UP:
                    on_warm_up(body)
                elif kind is Kind.ORDER:
                    self._early = said[number + 1 :]
                    return body
        return None

    def read_frames(self) -> list[tuple[Kind, bytes]] | None:
        """Read what the agent has said since; None at its end."""
        early, self._early = self._early, []
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return early
        except OSError:
            data = b""
        if not data:
            self._outgoing.discard_frames()
            return None
        return [*early, *self._frames.feed(data)]

    def queue_frame(self, kind: Kind, body: bytes) -> None:
        """Say something, with the next :meth:`flush`."""
        self._outgoing.add_frame(kind, body)

    def flush(self, wait_s: float = 0.0) -> None:
        """Hand over as much as the agent takes now, or within ``wait_s``."""
        self._outgoing.flush(wait_s)

    def await_close(self, limit_s: float) -> None:
        """Nothing more is said; wait until the agent closes its end, too.

        Else a command that it is just sending would fail, and what it has not read yet would be lost with it.
        """
        deadline = time.monotonic() + limit_s
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            while (left_s := deadline - time.monotonic()) > 0:
                self._sock.settimeout(left_s)
                if not self._sock.recv(1 << 16):
                    return
