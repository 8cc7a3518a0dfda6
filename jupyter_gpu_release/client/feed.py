"""News of one run for a client: a thread-safe queue that survives interrupts and lost connections."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ..errors import GpuReleaseError
from ..protocol.bounds import LARGEST_NUMBER
from ..protocol.runs import RunRequest, RunView
from ..protocol.session import Accepted, Events, Refused, Update
from ..protocol.states import RunState

#: as the last event that was seen: a feed has the run's views alone
NO_EVENTS = LARGEST_NUMBER


@dataclass(frozen=True)
class ConnectionLost:
    """The gateway cannot be reached; the session goes on trying unless ``final``."""

    error: GpuReleaseError
    final: bool = False


@dataclass(frozen=True)
class ConnectionBack:
    """The session is connected again; nothing was missed."""


FeedItem = Accepted | Refused | Update | Events | ConnectionLost | ConnectionBack


class RunFeed:
    """Messages about one run in order: events once each and without a gap, views with growing ``seq``."""

    def __init__(
        self,
        run: str,
        request: RunRequest | None,
        after: int,
        ask_again: Callable[[str, int], None],
        *,
        adopt: bool = False,
        on_item: Callable[[FeedItem], None] | None = None,
        while_unsent: Callable[[], None] | None = None,
    ) -> None:
        self.run = run
        #: called by the session's thread again and again while there is no connection and the request is not taken
        self.while_unsent = while_unsent
        #: take the run over if its own kernel is gone
        self.adopt = adopt
        #: kept until it is acknowledged, to be sent again after a lost connection
        self.request = request
        #: number of the last event put into the feed
        self.last_event = after
        self.view: RunView | None = None
        self.ended = False
        #: called by the session's thread with each item, instead of keeping it for :meth:`next_item`
        self._on_item = on_item
        self._ask_again = ask_again
        self._gap_reported_after = -1
        self._items: deque[FeedItem] = deque()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    # ------------------------------------------------------------------------------ the consumer's side
    def next_item(self, timeout_s: float | None = None) -> FeedItem | None:
        """The next item, or None after ``timeout_s``. A KeyboardInterrupt here loses nothing."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        items = self._items
        while not items:
            rest = None if deadline is None else deadline - time.monotonic()
            if rest is not None and rest <= 0:
                return None
            try:
                self._wake.get(timeout=rest)
            except queue.Empty:
                return None
        # From here to `return` nothing is called, so that the interpreter takes no signal in between: the item is
        # in the queue still, or with the caller.
        item = items[0]
        del items[0]
        return item

    # ------------------------------------------------------------------------- the session's side (one thread)
    def put_item(self, item: FeedItem) -> None:
        """Add an item and wake the consumer, or hand it over."""
        if self._on_item is not None:
            self._on_item(item)
            return
        self._items.append(item)
        self._wake.put(None)

    def on_message(self, message: Accepted | Update | Events | Refused) -> None:
        """Take in what the gateway says of the run."""
        if isinstance(message, Events):
            self.on_events(message)
        elif isinstance(message, Update):
            self.on_update(message)
        elif isinstance(message, Accepted):
            self.on_accepted(message)
        else:
            self.on_refused(message)

    def on_accepted(self, message: Accepted) -> None:
        """The submission is committed; a second acknowledgement (after a reconnect) is an update."""
        first, self.request = self.request is not None, None
        if first:
            self.view = message.view
            self.ended = RunState.of(message.view.state).is_terminal
            self.put_item(message)
        else:
            self.on_update(Update(message.view))

    def on_refused(self, message: Refused) -> None:
        """The run is refused or unknown: nothing more will come."""
        self.request = None
        self.ended = True
        self.put_item(message)

    def on_update(self, message: Update) -> None:
        """Pass on a view that is newer than the last, and behind its events.

        One that another feed of the run was sent, before the answer to this one's subscription, comes again with it.
        """
        if message.after_event > self.last_event or (self.view is not None and message.view.seq <= self.view.seq):
            return
        self.request = None
        self.view = message.view
        self.ended = RunState.of(message.view.state).is_terminal
        self.put_item(message)

    def on_events(self, message: Events) -> None:
        """Pass on what is new; a gap is asked for again and the batch dropped."""
        events = message.events
        if not events or events[-1].n <= self.last_event:
            return
        if events[0].n > self.last_event + 1:
            if self._gap_reported_after != self.last_event:
                self._gap_reported_after = self.last_event
                self._ask_again(self.run, self.last_event)
            return
        if events[0].n <= self.last_event:
            message = msgspec.structs.replace(message, events=[event for event in events if event.n > self.last_event])
        self.last_event = events[-1].n
        self.put_item(message)

    def on_reconnect(self) -> None:
        """A gap may be asked for again on a new connection."""
        self._gap_reported_after = -1


class FeedTable:
    """The feeds of one session; several places of a notebook may follow the same run."""

    def __init__(self) -> None:
        self._feeds: list[RunFeed] = []
        self._lock = threading.Lock()

    def add_feed(self, feed: RunFeed) -> None:
        """Take a feed in."""
        with self._lock:
            self._feeds.append(feed)

    def drop_feed(self, feed: RunFeed) -> None:
        """Forget a feed; fine when it is not there."""
        with self._lock:
            self._feeds = [each for each in self._feeds if each is not feed]

    def keep_unsent(self) -> None:
        """Look after, while there is no connection, what the gateway does not have yet."""
        for feed in self.all():
            if feed.request is not None and feed.while_unsent is not None:
                feed.while_unsent()

    def all(self) -> list[RunFeed]:
        """All of them."""
        with self._lock:
            return list(self._feeds)

    def feeds_of(self, run: str) -> list[RunFeed]:
        """Feeds of one run."""
        return [feed for feed in self.all() if feed.run == run]

    def resume(self) -> dict[str, int]:
        """Runs that the gateway knows of → number of the last event that all their feeds have."""
        found: dict[str, int] = {}
        for feed in self.all():
            if feed.request is None:
                found[feed.run] = min(feed.last_event, found.get(feed.run, feed.last_event))
        return found
