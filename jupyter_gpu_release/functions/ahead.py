"""Many calls of one function are sent without waiting for each answer: the gateway's first one speaks for all."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Hashable

from .hearing import Hearing

log = logging.getLogger(__name__)
#: calls that the gateway has not answered yet; who launches more waits for the oldest
_MOST = 64


class Ahead:
    """What the gateway has said of kinds of calls. A refusal that comes later is the future's."""

    def __init__(self) -> None:
        self._accepted: set[Hashable] = set()
        self._unanswered: deque[threading.Event] = deque()
        self._lock = threading.Lock()

    def note(self, kind: Hashable) -> None:
        """A call of this kind was accepted."""
        self._accepted.add(kind)

    def may_go(self, kind: Hashable, hearing: Hearing, wait_s: float) -> bool:
        """Whether a call that was just sent need not be waited for; returns when few enough are unanswered."""
        if kind not in self._accepted:
            return False
        hearing.on_refused = lambda: self._refused(kind, hearing)
        with self._lock:
            self._unanswered.append(hearing.settled)
            oldest = self._unanswered.popleft() if len(self._unanswered) > _MOST else None
        return oldest is None or oldest.wait(wait_s)

    def _refused(self, kind: Hashable, hearing: Hearing) -> None:
        """The next call of this kind is waited for again."""
        self._accepted.discard(kind)
        log.warning("a launched call was refused: %s", hearing.refusal)
