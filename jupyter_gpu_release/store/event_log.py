"""The event log of a run: length-prefixed msgpack records, torn tail tolerated.

Each attempt at the run appends to a file of its own (``events.log``, ``events.1.log`` …), and goes on with the numbers
of the one before. What an attempt that was given up still writes has the next one's numbers, too: it is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import msgspec

from ..errors import StoreError
from ..protocol.events import Event, carries_pickle, without_pickles
from ..protocol.wire import decode, encode
from .files import is_shared, open_new, open_plain
from .layout import of_attempt

_HEAD = struct.Struct("<I")
#: what a store has refused is kept up to this
KEPT_BYTES = 16 << 20
#: events with pickles that a writer knows to be its own: the newest
_MOST_KNOWN = 10_000
_NOTHING: Mapping[int, bytes] = MappingProxyType({})
_UNKNOWN = "it is read from a log that the members of a group can write, and loading it runs code"
#: of places in the logs of all attempts: no log is as long
_SPAN = 1 << 48


class EventWriter:
    """Appends events, each :meth:`write` whole or not at all; not fsynced (fsync on :meth:`close`).

    What the filesystem refuses is kept (up to 16 MiB) and goes first with the next try.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._kept: list[Event] = []
        self._kept_bytes = 0
        self._is_cut = False
        #: number of an event with a pickle → digest: which of those in the file are this writer's
        self.written: dict[int, bytes] = {}

    def write(self, events: list[Event]) -> None:
        """Record ``events`` and what is kept; raises :class:`StoreError` when the filesystem refuses."""
        self.written |= {event.n: _digest(event) for event in events if carries_pickle(event)}
        while len(self.written) > _MOST_KNOWN:
            del self.written[next(iter(self.written))]
        try:
            self._append(b"".join(map(_record, [*self._kept, *([] if self._is_cut else events)])))
        except OSError as error:
            self._keep(events)
            raise StoreError(f"cannot write the event log {self._path}: {error.strerror}") from error
        self._kept, self._kept_bytes = [], 0
        if self._is_cut:
            raise StoreError(f"the event log {self._path} could not be written for so long that output is missing")

    @property
    def is_open(self) -> bool:
        """Tell if there is anything to be made durable."""
        return self._descriptor is not None

    def drop_events(self) -> None:
        """Do not record what comes now: it was too much to be kept while nothing could be written."""
        self._is_cut = True

    def unwritten_events(self) -> list[Event]:
        """The events that are not in the file yet."""
        return list(self._kept)

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = open_new(self._path, os.O_WRONLY | os.O_APPEND)
        whole = os.fstat(self._descriptor).st_size
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:  # a full disk takes a part: nothing would be found behind a torn record
            os.ftruncate(self._descriptor, whole)
            raise

    def _keep(self, events: list[Event]) -> None:
        for event in events:
            self._kept_bytes += len(_record(event))
            self._is_cut = self._is_cut or self._kept_bytes > KEPT_BYTES
            if not self._is_cut:  # the log ends there: it has no holes
                self._kept.append(event)

    def close(self) -> None:
        """Make the log durable and close it; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StoreError(f"cannot sync the event log {self._path}: {error.strerror}") from error
        finally:
            os.close(descriptor)


def _record(event: Event) -> bytes:
    body = encode(event)
    return _HEAD.pack(len(body)) + body


def read_events(path: Path, after: int = 0, *, opener: Callable[[Path], int] = open_plain) -> Iterator[Event]:
    """Yield the recorded events with a number above ``after``; ends quietly at a torn last record."""
    yield from (event for event, _ in _all_records(path, 0, opener) if event.n > after)


def read_unforged(path: Path, after: int = 0, written: Mapping[int, bytes] = _NOTHING) -> Iterator[Event]:
    """Like :func:`read_events`; from a log that a group may write, pickles come only where ``written`` has them.

    ``written``: number → digest, as their writer knows them.
    """
    is_shared_log = False
    with contextlib.suppress(OSError):  # there is no log, then
        is_shared_log = is_shared(path.parent)
    for event in read_events(path, after):
        if is_shared_log and carries_pickle(event) and written.get(event.n) != _digest(event):
            yield without_pickles(event, _UNKNOWN)
        else:
            yield event


def events_after(path: Path, after: int, writer: EventWriter | None) -> list[Event]:
    """The events of all attempts above ``after``, also those that the ``writer`` of the last one has not written yet.

    Pickles of a log that a group may write come only where the writer knows them to be its own.
    """
    recorded = list(read_unforged(path, after, writer.written if writer is not None else _NOTHING))
    last = recorded[-1].n if recorded else after
    waiting = writer.unwritten_events() if writer is not None else []
    return [*recorded, *(event for event in waiting if event.n > last)]


def _digest(event: Event) -> bytes:
    return hashlib.blake2b(encode(event), digest_size=16).digest()


def read_piece(
    path: Path, at: int, most_bytes: int, *, opener: Callable[[Path], int] = open_plain
) -> tuple[list[Event], int]:
    """The recorded events from a place on, 0 at first, and the place behind them; none: there are no more (yet).

    ``most_bytes``: where it stops; a larger event comes alone.
    """
    events: list[Event] = []
    last = at
    with closing(_all_records(path, at, opener)) as records:
        for event, behind in records:
            if events and behind - at > most_bytes:
                break
            events.append(event)
            last = behind
    return events, last


def _all_records(path: Path, at: int, opener: Callable[[Path], int]) -> Generator[tuple[Event, int], None, None]:
    """Each event of all attempts from a place on, with the place behind it: the attempt's, then the byte in its log."""
    attempts = _attempts(path)
    for attempt, following in zip(attempts, [*attempts[1:], None], strict=True):
        first, begin = attempt * _SPAN, max(0, at - attempt * _SPAN)
        if begin >= _SPAN:
            continue
        end = _first_number(path, following, opener) if following is not None else None
        for event, behind in _records(path.with_name(of_attempt(path.name, attempt)), begin, opener):
            if end is not None and event.n >= end:
                break
            yield event, first + behind


def _attempts(path: Path) -> list[int]:
    """The attempts that have written a log beside ``path``, the first attempt's."""
    form = re.compile(re.escape(path.stem) + r"\.([1-9][0-9]*)" + re.escape(path.suffix))
    try:
        names = os.listdir(path.parent)
    except OSError:
        return [0]
    return [0, *sorted(int(found[1]) for found in map(form.fullmatch, names) if found is not None)]


def _first_number(path: Path, attempt: int, opener: Callable[[Path], int]) -> int | None:
    with closing(_records(path.with_name(of_attempt(path.name, attempt)), 0, opener)) as records:
        return next((event.n for event, _ in records), None)


def _records(path: Path, at: int, opener: Callable[[Path], int]) -> Generator[tuple[Event, int], None, None]:
    """Each event from a byte on, with the byte behind it."""
    try:
        with os.fdopen(opener(path), "rb") as log:
            log.seek(at)
            while len(head := log.read(_HEAD.size)) == _HEAD.size:
                body = log.read(_HEAD.unpack(head)[0])
                try:
                    event: Event = decode(body, Event)
                except msgspec.DecodeError:
                    return
                yield event, log.tell()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot read the event log {path}: {error.strerror}") from error
