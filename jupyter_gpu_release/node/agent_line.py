"""A supervisor's line to its agent: what the agent does not take yet waits here; its end is the agent's death."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable

from .frames import FrameReader, Kind, pack


class AgentLine:
    """Never waits for the agent, except in :meth:`flush` when asked to."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._frames = FrameReader()
        self._backlog = bytearray()
        #: came together with an order
        self._early: list[tuple[Kind, bytes]] = []
        #: nobody listens any more
        self.is_gone = False

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    @property
    def backlog_bytes(self) -> int:
        """What the agent has not taken yet."""
        return len(self._backlog)

    def await_order(self, wake: int, is_alive: Callable[[], bool]) -> bytes | None:
        """Wait for an order, however long; None when none will come, or nobody is alive to carry it out.

        ``wake`` can be read when that may have changed. What was said to an earlier run is not heard.
        """
        while is_alive():
            ready, _, _ = select.select([self.fileno(), wake], [], [])
            if wake in ready:
                os.read(wake, 64)
            said = self.read()
            if said is None:
                return None
            for number, (kind, body) in enumerate(said):
                if kind is Kind.ORDER:
                    self._early = said[number + 1 :]
                    return body
        return None

    def read(self) -> list[tuple[Kind, bytes]] | None:
        """What the agent said since; None at its end."""
        early, self._early = self._early, []
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return early
        except OSError:
            data = b""
        if not data:
            self.is_gone = True
            return None
        return [*early, *self._frames.feed(data)]

    def tell(self, kind: Kind, body: bytes) -> None:
        """Say something, with the next :meth:`flush`."""
        if not self.is_gone:
            self._backlog += pack(kind, body)

    def flush(self, wait_s: float = 0.0) -> None:
        """Hand over as much as the agent takes now, or within ``wait_s``."""
        deadline = time.monotonic() + wait_s
        while self._backlog and not self.is_gone:
            try:
                sent = self._sock.send(self._backlog)
                del self._backlog[:sent]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.002)
            except OSError:
                self.is_gone = True
