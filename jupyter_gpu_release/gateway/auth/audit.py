"""The audit log: who did what to whose run or token, from where, and whether it was allowed. Never a secret.

One JSON object a line in ``<home>/log/audit.jsonl`` (0600), rotated by size. A disk that is full stops no request:
the gateway's own log then says that the audit log has a gap.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...settings.built_in import BUILT_IN
from ...store.files import make_private_folder
from .permissions import Caller

log = logging.getLogger(__name__)
#: the same line again within this time is counted, not written
QUIET_S = 60.0
_MOST_BYTES: int = BUILT_IN["audit_file_bytes"].default
_KEPT_FILES = 5
_LONGEST_TEXT = 200
_MOST_RECENT = 1000
#: anything that may be a token, wherever a client may have put it (run ids are shorter)
_SECRET_LIKE = re.compile(r"[A-Za-z0-9_\-]{32,}")


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. ``result``: ``ok`` or the code of the refusal; ``repeated``: so often more since the line before."""

    at: str
    action: str
    result: str
    user: str = ""
    role: str = ""
    #: id of the token that was used
    token: str = ""
    origin: str = ""
    #: what it was done to: a run, a token's id, a route
    target: str = ""
    detail: str = ""
    repeated: int = 0


@dataclass
class _Recent:
    written_s: float
    repeated: int = 0


class AuditLog:
    """Writes entries; ``clock`` gives unix seconds."""

    def __init__(self, path: Path, *, most_bytes: int = _MOST_BYTES, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._clock = clock
        self._recent: dict[Entry, _Recent] = {}

    def write_entry(
        self, caller: Caller, action: str, target: str = "", *, result: str = "ok", detail: str = ""
    ) -> None:
        """Write what ``caller`` did (``result`` "ok") or was refused (the error's code).

        The same again within :data:`QUIET_S` is counted only; the count is written when that time is over.
        """
        entry = Entry(
            "",
            action,
            result,
            caller.user,
            caller.role,
            caller.token,
            _clean(caller.origin),
            _clean(target),
            _clean(detail),
        )
        now_s = self._clock()
        self.write_counts()
        recent = self._recent.get(entry)
        if recent is not None:
            recent.repeated += 1
            return
        self._recent[entry] = _Recent(now_s)
        self._write(entry, now_s, 0)

    def write_counts(self) -> None:
        """Write the counts whose time is over (called every few seconds, too)."""
        now_s = self._clock()
        while self._recent:
            entry, recent = next(iter(self._recent.items()))  # the oldest
            if 0 <= now_s - recent.written_s < QUIET_S and len(self._recent) < _MOST_RECENT:
                return
            del self._recent[entry]
            if recent.repeated:
                self._write(entry, now_s, recent.repeated)

    def _write(self, entry: Entry, now_s: float, repeated: int) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1000):03d}Z"
        line = msgspec.json.encode(msgspec.structs.replace(entry, at=at, repeated=repeated)) + b"\n"
        try:
            self._append(line)
        except OSError as error:
            log.error("the audit log %s misses a line: %s (%s)", self._path, line.decode().strip(), error.strerror)

    def _append(self, line: bytes) -> None:
        make_private_folder(self._path.parent)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size >= self._most_bytes:
            self._rotate()

    def _rotate(self) -> None:
        """``audit.jsonl`` → ``.1`` → … ; the oldest goes."""
        for number in range(_KEPT_FILES - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                os.replace(older, self._path.with_name(f"{self._path.name}.{number + 1}"))
        os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))


def _clean(text: str) -> str:
    return _SECRET_LIKE.sub("…", text)[:_LONGEST_TEXT]
