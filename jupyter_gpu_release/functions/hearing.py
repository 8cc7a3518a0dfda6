"""What a session hears of one launched run, on the session's own thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..client.feed import ConnectionBack, ConnectionLost, FeedItem
from ..core.messages import Event
from ..core.session_messages import Events, Refused
from ..errors import GpuReleaseError, RunLostError, from_code
from .launched import Launched
from .words import of_function

log = logging.getLogger(__name__)
Show = Callable[[Sequence[Event]], None]


class Hearing:
    """Called with each item; nothing it does may stop the session's thread."""

    def __init__(self, launched: Launched[Any], show: Show, on_lost: Callable[[], None]) -> None:
        self._launched = launched
        self._show = show
        self._on_lost = on_lost
        #: the gateway has committed the run, or refused it
        self.settled = threading.Event()
        self.refusal: GpuReleaseError | None = None
        #: called, where nobody waits for the answer, when the gateway refuses the run
        self.on_refused: Callable[[], None] = lambda: None

    def __call__(self, item: FeedItem) -> None:
        """Take one item in."""
        if isinstance(item, Events):
            self._pass_on(item.events)
        elif isinstance(item, Refused):
            self._refused(from_code(item.code, of_function(item.message), of_function(item.mend)))
        elif isinstance(item, ConnectionLost):
            if item.final:
                self._refused(item.error)
            else:
                self._on_lost()
        elif not isinstance(item, ConnectionBack):
            self._launched.take(item.view)
            self.settled.set()

    def _refused(self, error: GpuReleaseError) -> None:
        """Before the run was committed it did not happen; after that the gateway does not know it any more."""
        if not self.settled.is_set():
            self.refusal = error
            self.on_refused()
        elif isinstance(error, RunLostError) or error.code == "no_such_run":
            error = RunLostError(error.message, mend=error.mend)
        self._launched.give_up(error)
        self.settled.set()

    def _pass_on(self, events: Sequence[Event]) -> None:
        try:
            self._show(events)
        except Exception:  # a closed stdout must not end the session
            log.exception("output of run %s could not be shown", self._launched.id)
