"""Reading a run's feed in tests."""

from __future__ import annotations

import time
from collections.abc import Callable

from jupyter_gpu_release.client.feed import FeedItem, RunFeed
from jupyter_gpu_release.protocol.runs import RunView
from jupyter_gpu_release.protocol.session import Accepted, Events, Refused, Update
from jupyter_gpu_release.protocol.states import RunState

_PATIENCE_S = 120.0


class Reading:
    """Everything that a feed has given so far."""

    def __init__(self, feed: RunFeed) -> None:
        self.feed = feed
        self.items: list[FeedItem] = []

    def until(self, condition: Callable[[FeedItem], object], patience_s: float = _PATIENCE_S) -> FeedItem:
        """Read on to the first item that meets ``condition``."""
        deadline = time.monotonic() + patience_s
        while True:
            item = self.feed.next_item(max(0.0, deadline - time.monotonic()))
            assert item is not None, f"nothing more within {patience_s} s, after {self.items[-3:]}"
            self.items.append(item)
            if condition(item):
                return item

    def state(self, word: str, patience_s: float = _PATIENCE_S) -> RunView:
        """Read on to this state."""
        return self._view(lambda view: view.state == word, patience_s)

    def end(self) -> RunView:
        """Read on to the terminal state."""
        return self._view(lambda view: RunState.of(view.state).is_terminal)

    def gone(self) -> RunView:
        """Read on to the end of the lease."""
        return self._view(lambda view: view.gone_at is not None)

    def position(self, place: int) -> RunView:
        """Read on to this place in the queue."""
        return self._view(lambda view: view.position == place)

    def reason(self, text: str) -> RunView:
        """Read on to a reason that says this."""
        return self._view(lambda view: text in view.reason)

    def event(self, number: int) -> None:
        """Read on to the event with this number."""
        self.until(lambda item: isinstance(item, Events) and item.events[-1].n >= number)

    def refused(self) -> Refused:
        """Read on to the refusal."""
        item = self.until(lambda item: isinstance(item, Refused))
        assert isinstance(item, Refused)
        return item

    def numbers(self) -> list[int]:
        """Numbers of the events read so far."""
        return [event.n for item in self.items if isinstance(item, Events) for event in item.events]

    def views(self) -> list[RunView]:
        """The views read so far."""
        return [item.view for item in self.items if isinstance(item, Accepted | Update)]

    def _view(self, condition: Callable[[RunView], object], patience_s: float = _PATIENCE_S) -> RunView:
        item = self.until(lambda item: isinstance(item, Accepted | Update) and condition(item.view), patience_s)
        assert isinstance(item, Accepted | Update)
        return item.view
