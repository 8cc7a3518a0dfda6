"""The output that is recorded of a run, shown again in another cell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...errors import GatewayUnavailableError, from_code
from ...presentation.run_output import RunOutput
from ...presentation.terminal import OutputCollapser
from ...protocol.runs import RunView
from ...protocol.session import Accepted, Events, Refused, Update

if TYPE_CHECKING:
    from ...client.session import GatewaySession

_SILENT_S = 10.0


def show_recorded(session: GatewaySession, run: str, relay: RunOutput) -> RunView:
    """Show what is recorded up to now, folded; returns the run's view.

    Raises what the gateway refuses with, and :class:`GatewayUnavailableError` when it falls silent.
    """
    folding = OutputCollapser()
    feed = session.follow(run)
    silent_since = time.monotonic()
    try:
        while time.monotonic() - silent_since < _SILENT_S:
            item = feed.next_item(0.25)
            if item is None:
                continue
            silent_since = time.monotonic()
            if isinstance(item, Events):
                relay.show(folding.feed(item.events))
            elif isinstance(item, Refused):
                raise from_code(item.code, item.message, item.hint)
            elif isinstance(item, Update | Accepted):  # the gateway sends all events that it knows before it
                relay.show(folding.rest())
                relay.show_held_back()
                return item.view
        raise GatewayUnavailableError("the gateway does not answer", hint="look at `jupyter gpu status`")
    finally:
        session.drop_feed(feed)
