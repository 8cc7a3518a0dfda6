"""A page of a run's output for an assistant: text and pictures, no more than it can read at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..presentation.plain_text import text_of, without_colours
from ..presentation.terminal import OutputCollapser
from ..protocol.events import Event

PNG = "image/png"
#: letters of a page; a picture counts as so many
_MOST_LETTERS, _PICTURE = 20_000, 5_000


@dataclass(frozen=True)
class Picture:
    """A PNG as base64."""

    data: str


@dataclass(frozen=True)
class OutputPage:
    """``parts`` in their order. ``last``: number of the last event of the page; ``more``: others follow."""

    parts: list[str | Picture]
    last: int
    more: bool


def page_of(events: Sequence[Event], after: int) -> OutputPage:
    """As many of the ``events`` after event ``after`` as a page holds: one at least, a longer one cut."""
    taken, letters = 0, 0
    while taken < len(events) and (not taken or letters + _size(events[taken]) <= _MOST_LETTERS):
        letters += _size(events[taken])
        taken += 1
    folding = OutputCollapser()
    parts = _joined([*folding.feed(events[:taken]), *folding.rest()])
    return OutputPage(parts, events[taken - 1].n if taken else after, taken < len(events))


def pictures_of(events: Iterable[Event]) -> list[Picture]:
    """The pictures that are displayed."""
    return [Picture(data) for event in events if (data := _png(event))]


def _size(event: Event) -> int:
    return _PICTURE if _png(event) else len(text_of(event))


def _png(event: Event) -> str:
    data = event.data.get("data") if event.kind in ("display", "update_display") else None
    return str(data.get(PNG, "")) if isinstance(data, dict) else ""


def _joined(events: Iterable[Event]) -> list[str | Picture]:
    """Texts that follow each other are one."""
    parts: list[str | Picture] = []
    for event in events:
        if png := _png(event):
            parts.append(Picture(png))
        elif text := without_colours(text_of(event)):
            before = parts.pop() if parts and isinstance(parts[-1], str) else ""
            parts.append(f"{before}{text}"[:_MOST_LETTERS])
    return parts
