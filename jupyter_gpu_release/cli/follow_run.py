"""``jupyter gpu attach RUN``: a run's output in a terminal, from its beginning and then live."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterable

from ..client.discovery import Target
from ..client.rest import GatewayClient
from ..client.session import ConnectionLost, GatewaySession, RunFeed
from ..core.folding import Folding
from ..core.messages import Event, RunView
from ..core.plain_output import is_stderr, text_of
from ..core.resources import format_seconds
from ..core.run import RunState
from ..core.session_messages import Accepted, Events, Refused, Update
from ..errors import from_code
from .gateway import reachable_gateway
from .run_commands import resolve

_TICK_S = 0.5
_EXIT_INTERRUPTED = 130


def attach(arguments: argparse.Namespace) -> int:
    """Exit status: 0 for a run that succeeded, 1 for any other end, 130 when it was left (it goes on)."""
    target = reachable_gateway()
    with GatewayClient.of(target) as gateway:
        run = resolve(gateway, arguments.run)
    session = GatewaySession(target, f"terminal-{secrets.token_hex(6)}")
    try:
        session.connect(10.0)
        return _follow(session.follow(run), target)
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{run} goes on; `jupyter gpu attach {run}` shows it again\n")
        return _EXIT_INTERRUPTED
    finally:
        session.close()


def _follow(feed: RunFeed, target: Target) -> int:
    folding: Folding | None = Folding()
    said = ""
    while True:
        item = feed.get(_TICK_S)
        if isinstance(item, Events):
            _print(item.events if folding is None else folding.feed(item.events))
        elif isinstance(item, Refused):
            raise from_code(item.code, item.message, item.mend)
        elif isinstance(item, ConnectionLost):
            if item.final:
                raise item.error
            sys.stderr.write(f"connection to {target.url} lost, the run goes on; reconnecting …\n")
        elif isinstance(item, Accepted | Update):
            if folding is not None:  # what was recorded comes before the first view
                _print(folding.rest())
                folding = None
            if RunState.of(item.view.state).is_terminal:
                return _end(item.view)
            said = _say_waiting(item.view, said)


def _print(events: Iterable[Event]) -> None:
    for event in events:
        stream = sys.stderr if is_stderr(event) else sys.stdout
        stream.write(text_of(event))
        stream.flush()


def _say_waiting(view: RunView, said: str) -> str:
    """A line for each change, while there is nothing else to see."""
    if view.granted_at is not None:
        return said
    position = f", position {view.position}" if view.position else ""
    text = f"{view.run}: {view.state}{position}{f' ({view.reason})' if view.reason else ''}\n"
    if text != said:
        sys.stderr.write(text)
    return text


def _end(view: RunView) -> int:
    reason = f": {view.reason}" if view.reason else ""
    held = ""
    if view.granted_at is not None and view.gone_at is not None:
        held = f", held {format_seconds(max(0.0, view.gone_at - view.granted_at))}"
    sys.stderr.write(f"[{view.run} {view.state}{reason}{held}]\n")
    return 0 if RunState.of(view.state) is RunState.SUCCEEDED else 1
