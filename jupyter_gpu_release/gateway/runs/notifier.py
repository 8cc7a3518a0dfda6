"""``ChangeNotifier``: tells the followers of a run of its changes, many of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

_SOON_S = 0.05
#: moves in the queue are told this late for each place, but within these bounds, and those of many runs together
_A_PLACE_S, _LEAST_S, _MOST_S, _TOGETHER_S = 0.1, 0.2, 2.0, 0.1


class ChangeNotifier:
    """A notifier that tells all waiting changes together, once, as soon as the first of them is due."""

    def __init__(self) -> None:
        #: called after each change and each batch of events
        self.watchers: set[Callable[[], None]] = set()
        self._due: asyncio.TimerHandle | None = None

    def notify(self) -> None:
        """Tell everybody who follows this run."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        for watcher in list(self.watchers):
            watcher()

    def notify_soon(self) -> None:
        """Tell them in a moment, with what else changes until then."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + _SOON_S
        if self._due is None or self._due.when() > at_s:
            if self._due is not None:
                self._due.cancel()
            self._due = loop.call_at(at_s, self.notify)

    def notify_later(self, place: int) -> None:
        """Tell them in a while of their place in the queue, once for all changes until then."""
        if self._due is None:
            loop = asyncio.get_running_loop()
            at_s = loop.time() + min(max(_LEAST_S, place * _A_PLACE_S), _MOST_S)
            self._due = loop.call_at(at_s + -at_s % _TOGETHER_S, self.notify)


class NotifyWhen(Enum):
    """The moment when the followers of a run hear of a change."""

    NOW = "now"
    #: with the next change, which is expected within milliseconds; else a little later
    SOON = "soon"
