"""What a session sends: one thread writes it, with a heartbeat now and then, so that no message is cut in half."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core.messages import encode
from ..core.session_messages import ClientMessage, Heartbeat
from .link import send

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

HEARTBEAT_S = 3.0
#: for the thread that writes, when the session is closed
_LAST_WORDS_S = 5.0


class Outbox:
    """``link``: the connection; what is written while there is none is gone."""

    def __init__(self, link: Callable[[], ClientConnection | None]) -> None:
        self._link = link
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._over = threading.Event()

    def put(self, message: ClientMessage | None) -> None:
        """Have it written; None: the last one was, the connection is to be closed. Never blocks.

        Raises what encoding raises: here, where somebody hears of it.
        """
        self._messages.put(encode(message) if message is not None else None)

    def wait_until_over(self) -> None:
        """Return when the last message is written: who closes the connection before takes the good-bye's way."""
        self._over.wait(_LAST_WORDS_S)

    def write_forever(self) -> None:
        """The thread's work."""
        beat_at = time.monotonic() + HEARTBEAT_S
        while True:
            try:
                data = self._messages.get(timeout=max(0.0, beat_at - time.monotonic()))
            except queue.Empty:
                data = encode(Heartbeat(time.time()))
                beat_at = time.monotonic() + HEARTBEAT_S
            link = self._link()
            if data is None:
                self._over.set()
                if link is not None:
                    link.close()
                return
            if link is not None:
                send(link, data)
