"""What a run says of its progress: the last line of its output as a reader sees it, progress bars folded."""

from __future__ import annotations

import re

from ..core.folding import Folding
from ..core.messages import Event, decode
from .tail import EventTail

#: so much of the latest output is looked at: a nested bar redraws itself well within it
_LOOKED_AT_BYTES = 16 << 10
_LONGEST = 160
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def progress_of(tail: EventTail) -> str:
    """The last line of text in a run's latest output (of rank 0); empty when there is none in memory.

    Worked out when somebody asks and something came since.
    """
    if tail.progress[0] != tail.last:
        tail.progress = (tail.last, _last_line(_latest(tail)) or tail.progress[1])
    return tail.progress[1]


def _latest(tail: EventTail) -> list[Event]:
    found: list[Event] = []
    size = 0
    for raw in tail.newest():
        size += len(raw)
        if size > _LOOKED_AT_BYTES and found:
            break
        event = decode(bytes(raw), Event)
        if event.kind == "stream" and not event.data.get("rank", 0):
            found.append(event)
    return found[::-1]


def _last_line(events: list[Event]) -> str:
    folding = Folding()
    shown = [*folding.feed(events), *folding.rest()]
    text = "".join(str(event.data.get("text", "")) for event in shown if event.kind == "stream")
    lines = [line.strip() for line in _COLOURS.sub("", text[-4 * _LONGEST :]).splitlines()]
    return next((line[:_LONGEST] for line in reversed(lines) if line), "")
