"""Text on its way out of a rank, in memory that outlives it: what was printed just before a crash is not lost."""

from __future__ import annotations

import mmap
import os
import struct

_HEAD = struct.Struct("<QQ")
_ENTRY = struct.Struct("<IB")
_NAMES = ("stdout", "stderr")
_BYTES = 1 << 20


class TextJournal:
    """Shared by a rank, which writes, and its supervisor, which reads after the rank's death.

    One thread adds; positions only grow until :meth:`restart`. No lock: the position is written last.
    ``name``: of the memory, in ``/proc/*/maps`` of both and of all that the rank forks.
    """

    def __init__(self, name: str = "text-journal") -> None:
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.truncate(fd, _BYTES)
            self._memory = mmap.mmap(fd, _BYTES)
        finally:
            os.close(fd)
        self.restart()

    def restart(self) -> None:
        """Begin at the front again; everything must have been sent."""
        self._at = self._sent = _HEAD.size
        self._note()

    def add_text(self, name: str, text: str) -> int:
        """Note ``text`` of the stream ``name``; returns the position behind it, 0 where it does not fit."""
        data = text.encode("utf-8", "replace")
        start = self._at + _ENTRY.size
        end = start + len(data)
        if end > _BYTES:
            return 0
        _ENTRY.pack_into(self._memory, self._at, len(data), _NAMES.index(name))
        self._memory[start:end] = data
        self._at = end
        self._note()
        return end

    def note_sent(self, position: int) -> None:
        """All up to ``position`` is on its way to the supervisor."""
        if position > self._sent:
            self._sent = position
            self._note()

    def unsent_texts(self) -> list[tuple[str, str]]:
        """Name and text of what was added but not sent."""
        at, end = _HEAD.unpack_from(self._memory, 0)
        found = []
        while at + _ENTRY.size <= end:
            length, number = _ENTRY.unpack_from(self._memory, at)
            at += _ENTRY.size
            if number >= len(_NAMES) or at + length > end:
                break  # a signal's handler has printed in the middle of a print
            found.append((_NAMES[number], self._memory[at : at + length].decode("utf-8", "replace")))
            at += length
        return found

    def _note(self) -> None:
        _HEAD.pack_into(self._memory, 0, self._sent, self._at)
