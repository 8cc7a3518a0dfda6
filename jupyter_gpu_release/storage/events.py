"""The event log of a run: length-prefixed msgpack records, appended by one writer, torn tail tolerated."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..core.messages import Event, decode, encode
from ..errors import StoreError

_HEAD = struct.Struct("<I")


class EventWriter:
    """Appends events; each :meth:`write` is one ``write`` call, not fsynced (fsync on :meth:`close`)."""

    def __init__(self, path: Path) -> None:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise StoreError(f"cannot open the event log {path}: {error.strerror}") from error
        self._path = path

    def write(self, events: list[Event]) -> None:
        """Record ``events``; raises :class:`StoreError` when the filesystem refuses."""
        data = b"".join(_HEAD.pack(len(body)) + body for body in map(encode, events))
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise StoreError(f"cannot write the event log {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Make the log durable and close it; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StoreError(f"cannot sync the event log {self._path}: {error.strerror}") from error
        finally:
            os.close(descriptor)


def read_events(path: Path, after: int = 0) -> Iterator[Event]:
    """Yield the recorded events with a number above ``after``; ends quietly at a torn last record."""
    try:
        with path.open("rb") as log:
            while len(head := log.read(_HEAD.size)) == _HEAD.size:
                body = log.read(_HEAD.unpack(head)[0])
                try:
                    event: Event = decode(body, Event)
                except msgspec.DecodeError:
                    return
                if event.n > after:
                    yield event
    except FileNotFoundError:
        return
