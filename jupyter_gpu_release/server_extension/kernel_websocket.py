"""The WebSocket between a page and a kernel: messages are sent as they come."""

from __future__ import annotations

from typing import Any

#: the server's setting of the class of such connections
WEBSOCKET = "kernel_websocket_connection_class"


def without_delay(connection: Any) -> type:
    """The server's class of connections (:data:`WEBSOCKET`), made to send each message at once.

    As it is, a message right behind another waits until the page's system has acknowledged the first: 40 ms, for the
    list of completions, the end of a cell and each display behind a line of text.
    """

    class WithoutDelay(connection):
        def connect(self) -> Any:
            self.websocket_handler.set_nodelay(True)
            return super().connect()

    WithoutDelay.__name__ = connection.__name__  # by which its settings are found, and which logs name
    WithoutDelay.__qualname__ = connection.__qualname__
    return WithoutDelay
