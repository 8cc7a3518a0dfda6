"""Frames on their way into a non-blocking socket: nobody is waited for, nothing is lost, no frame goes in part."""

from __future__ import annotations

import math
import select
import socket
import time

from .frames import Kind, pack


class Outgoing:
    """What the other side of ``sock`` does not take yet waits here."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._waiting = bytearray()
        #: the other side is gone; what is said to it is dropped
        self.is_gone = False

    def __len__(self) -> int:
        """Bytes that the other side has not taken yet."""
        return len(self._waiting)

    def add(self, kind: Kind, body: bytes = b"") -> None:
        """Say something, with the next :meth:`flush`."""
        if not self.is_gone:
            self._waiting += pack(kind, body)

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
                self.give_up()

    def give_up(self) -> None:
        """The other side is gone."""
        self.is_gone = True
        self._waiting.clear()
