"""A supervisor's line to its agent: what the agent does not take yet waits here; its end is the agent's death."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

from .frames import FrameReader, Kind
from .outgoing import Outgoing


class AgentLine:
    """Never waits for the agent, except in :meth:`flush` when asked to."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = FrameReader()
        self._outgoing = Outgoing(sock)
        #: came together with an order
        self._early: list[tuple[Kind, bytes]] = []

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    @property
    def is_gone(self) -> bool:
        """Whether nobody listens any more."""
        return self._outgoing.is_gone

    @property
    def backlog_bytes(self) -> int:
        """What the agent has not taken yet."""
        return len(self._outgoing)

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
            self._outgoing.give_up()
            return None
        return [*early, *self._frames.feed(data)]

    def tell(self, kind: Kind, body: bytes) -> None:
        """Say something, with the next :meth:`flush`."""
        self._outgoing.add(kind, body)

    def flush(self, wait_s: float = 0.0) -> None:
        """Hand over as much as the agent takes now, or within ``wait_s``."""
        self._outgoing.flush(wait_s)
