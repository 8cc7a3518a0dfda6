"""Which files a cell writes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ..core.messages import FileInfo, Outcome, encode
from . import workplace
from .plain import plain_outcome

#: a filesystem that has not said so soon what is there hangs
_LOOK_S = 2.0


class WrittenTo(msgspec.Struct, frozen=True):
    """Where a cell may have written since ``since_s``: paths as the system has them."""

    opened: list[bytes]
    since_s: float
    run_dir: bytes
    here: bytes


def written_to(opened: Iterable[str], since_s: float, run_dir: Path) -> WrittenTo:
    """As the rank knows it."""
    return WrittenTo([os.fsencode(path) for path in opened], since_s, os.fsencode(run_dir), os.getcwdb())


class FileLook:
    """Looks in a thread which files are there, beginning now."""

    def __init__(self, where: WrittenTo) -> None:
        self._where = where
        self._found: list[FileInfo] = []
        self._thread = threading.Thread(target=self._look, name="jgr-files", daemon=True)
        self._thread.start()

    def put_into(self, outcome: Outcome) -> Outcome:
        """The outcome with the files, or with a note that the filesystem does not answer."""
        self._thread.join(_LOOK_S)
        if self._thread.is_alive():
            note = "which files the cell wrote is not known: their filesystem does not answer"
            return msgspec.structs.replace(outcome, notes=[*outcome.notes, note])
        outcome = msgspec.structs.replace(outcome, files=self._found)
        try:
            encode(outcome)
        except (TypeError, ValueError):  # odd file names
            return plain_outcome(outcome)
        return outcome

    def _look(self) -> None:
        where = self._where
        opened = [os.fsdecode(path) for path in where.opened]
        run_dir, here = Path(os.fsdecode(where.run_dir)), Path(os.fsdecode(where.here))
        self._found = workplace.written_files(opened, where.since_s, run_dir, here)


class WrittenFiles:
    """Remembers the files that Python code opened for writing (audit event ``open``)."""

    def __init__(self) -> None:
        self.begin()
        sys.addaudithook(self._hook)

    def begin(self) -> None:
        """Forget what was written so far, and by which process."""
        self.paths: dict[str, None] = {}
        self._pid = os.getpid()

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or os.getpid() != self._pid:
            return
        path, mode, flags = arguments
        writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool(flags & (os.O_WRONLY | os.O_RDWR))
        if writes and isinstance(path, (str, os.PathLike)):
            self.paths[os.path.abspath(path)] = None
