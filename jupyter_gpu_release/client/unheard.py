"""What the gateway was told and may not have heard: a connection that is gone can go on taking messages for a while."""

from __future__ import annotations

import math
import threading
from collections import deque

from ..core.session_messages import Detach, Heartbeat, Signal, Supply


class Unheard:
    """Signals, detachments, values that were asked for: in order, until a heartbeat sent behind them is echoed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        #: with the number of the heartbeat behind it; None: not sent yet
        self._messages: deque[tuple[float | None, Signal | Detach | Supply]] = deque()

    def keep(self, message: Signal | Detach | Supply) -> None:
        """It is to be sent."""
        with self._lock:
            self._messages.append((None, message))

    def due(self, *, again: bool = False) -> list[Signal | Detach | Supply | Heartbeat]:
        """What is to be sent now, with the heartbeat behind it; ``again``: the connection is a new one."""
        with self._lock:
            due: list[Signal | Detach | Supply | Heartbeat] = [m for mark, m in self._messages if again or mark is None]
            if not due:
                return []
            self._number += 1
            behind = -float(self._number)  # no time, which the regular ones have
            self._messages = deque((behind if again or mark is None else mark, m) for mark, m in self._messages)
            return [*due, Heartbeat(behind)]

    def heard(self, echo: Heartbeat) -> None:
        """The gateway has heard this heartbeat, and all that was sent before it."""
        if echo.at_s < 0:
            with self._lock:
                while self._messages and (self._messages[0][0] or -math.inf) >= echo.at_s:
                    self._messages.popleft()
