"""Recent events of runs in memory, their progress lines, and the moment when followers hear of a change."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from ...presentation.plain_text import without_colours
from ...presentation.terminal import OutputCollapser
from ...protocol.events import Event
from ...protocol.node import AttemptId, RunAsks, RunPhase, RunSaved, RunStays, RunUnbegun, RunWaits
from ...protocol.wire import decode, encode

#: encoded events kept per run; older ones are read from the run's log
TAIL_BYTES = 2 << 20
#: events in one message to a client at most
_CHUNK_EVENTS = 1000
#: so much of the latest output is looked at: a nested bar redraws itself well within it
_LOOKED_AT_BYTES = 16 << 10
_LONGEST = 160
_SOON_S = 0.05
#: moves in the queue are told this late for each place, but within these bounds, and those of many runs together
_A_PLACE_S, _LEAST_S, _MOST_S, _TOGETHER_S = 0.1, 0.2, 2.0, 0.1


class _Number(msgspec.Struct, frozen=True, array_like=True):
    n: int


class RawEvents(msgspec.Struct, frozen=True, tag="events"):
    """``Events`` with the events left encoded."""

    run: str
    events: list[msgspec.Raw]


class RawRunEvents(msgspec.Struct, frozen=True, tag="events"):
    """``RunEvents`` with the events left encoded."""

    attempt_id: AttemptId
    events: list[msgspec.Raw]


RawMessage: TypeAlias = RawRunEvents | RunPhase | RunWaits | RunAsks | RunUnbegun | RunSaved | RunStays


class RawReport(msgspec.Struct, frozen=True):
    """A ``NodeReport`` with the events left encoded."""

    node: str
    incarnation: str
    messages: list[RawMessage]


@dataclass(frozen=True)
class Batch:
    """Consecutive events ``first`` … ``last`` and the message that carries them."""

    first: int
    last: int
    events: list[msgspec.Raw]
    message: bytes

    def after(self, run: str, n: int) -> Batch:
        """The part with numbers above ``n``."""
        return self if n < self.first else batch_of(run, self.events[n - self.first + 1 :])


def number_of(event: msgspec.Raw) -> int:
    """The number of an encoded event."""
    return decode(bytes(event), _Number).n


def batch_of(run: str, events: list[msgspec.Raw]) -> Batch:
    """Wrap consecutive encoded events (at least one)."""
    return Batch(number_of(events[0]), number_of(events[-1]), events, encode(RawEvents(run, events)))


def batches_of(run: str, events: list[Event], after: int) -> list[Batch]:
    """Wrap events above ``after`` that were read from a log, in messages of bounded length, holes filled."""
    raw: list[Any] = [msgspec.Raw(encode(event)) for event in _without_holes(events, after)]
    return [batch_of(run, raw[at : at + _CHUNK_EVENTS]) for at in range(0, len(raw), _CHUNK_EVENTS)]


def _without_holes(events: list[Event], after: int) -> Iterator[Event]:
    """A log that could not be written for a while lacks events; followers count on consecutive numbers."""
    for event in events:
        if event.n > after + 1:
            text = f"{event.n - after - 1} pieces of output were not recorded"
            yield Event(after + 1, event.at_s, "note", {"text": text})
            for n in range(after + 2, event.n):
                yield Event(n, event.at_s, "stream", {"name": "stdout", "text": ""})
        yield event
        after = event.n


class EventTail:
    """Batches in order and without a gap, the oldest dropped beyond ``TAIL_BYTES``."""

    def __init__(self, run: str) -> None:
        self.run = run
        #: number of the last event that the gateway has heard of
        self.last = 0
        #: False for a run of the gateway's earlier life: there may be more in its log
        self.known = True
        #: number of the event up to which it was read, and what it said (see ``gateway/runs/events.py``)
        self.progress = (0, "")
        self._batches: deque[Batch] = deque()
        self._bytes = 0

    def newest(self) -> Iterator[msgspec.Raw]:
        """The encoded events in memory, the latest first."""
        for batch in reversed(self._batches):
            yield from reversed(batch.events)

    def add(self, events: list[msgspec.Raw]) -> bool:
        """Take in a reported batch. False: events before it are missing, so it must be read from the log."""
        if not events:
            return True
        batch = batch_of(self.run, events)
        if batch.last <= self.last:
            return True
        gap = batch.first > self.last + 1
        if gap:
            self.clear()
        else:
            self._append(batch.after(self.run, self.last))
        self.last = batch.last
        return not gap

    def after(self, n: int) -> list[Batch] | None:
        """The batches with events above ``n``; None when they are not (all) in memory."""
        if n >= self.last:
            return []
        if not self._batches or self._batches[0].first > n + 1:
            return None
        return [batch.after(self.run, n) for batch in self._batches if batch.last > n]

    def clear(self) -> None:
        """Drop what is in memory (the log has it)."""
        self._batches.clear()
        self._bytes = 0

    def _append(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._bytes += len(batch.message)
        while self._bytes > TAIL_BYTES and len(self._batches) > 1:
            self._bytes -= len(self._batches.popleft().message)


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
    folding = OutputCollapser()
    shown = [*folding.feed(events), *folding.rest()]
    text = "".join(str(event.data.get("text", "")) for event in shown if event.kind == "stream")
    lines = [line.strip() for line in without_colours(text[-4 * _LONGEST :]).splitlines()]
    return next((line[:_LONGEST] for line in reversed(lines) if line), "")


class ChangeNotifier:
    """A notifier that tells all waiting changes together, once, as soon as the first of them is due."""

    def __init__(self) -> None:
        #: called after each change and each batch of events
        self.watchers: set[Callable[[], None]] = set()
        self._due: asyncio.TimerHandle | None = None
        #: time of the loop's clock at which it is due (not every loop's handles tell it)
        self._due_at_s = 0.0

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
        if self._due is None or self._due_at_s > at_s:
            if self._due is not None:
                self._due.cancel()
            self._due, self._due_at_s = loop.call_at(at_s, self.notify), at_s

    def notify_later(self, place: int) -> None:
        """Tell them in a while of their place in the queue, once for all changes until then."""
        if self._due is None:
            loop = asyncio.get_running_loop()
            at_s = loop.time() + min(max(_LEAST_S, place * _A_PLACE_S), _MOST_S)
            self._due_at_s = at_s + -at_s % _TOGETHER_S
            self._due = loop.call_at(self._due_at_s, self.notify)


class NotifyWhen(Enum):
    """The moment when the followers of a run hear of a change."""

    NOW = "now"
    #: with the next change, which is expected within milliseconds; else a little later
    SOON = "soon"
