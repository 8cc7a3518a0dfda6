"""Search for the files that a cell writes."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ...protocol.config import UnixUser
from ...protocol.runs import FileInfo, Outcome
from ...protocol.wire import encode
from ..ipc.plain_values import plain_outcome

_MOST_FILES = 200


def written_files(opened: Iterable[str], since_s: float, run_dir: Path, here: Path) -> list[FileInfo]:
    """Files that the cell wrote: opened for writing by Python code, in ``run_dir``, or new in ``here``, its folder.

    Writes of native code are found in those two folders only, hidden files in ``run_dir`` only. At most 200 are listed.
    """
    candidates = {Path(path) for path in opened} | {Path(p) for p in _walk(run_dir)} | _newer(here, since_s)
    found: list[FileInfo] = []
    for path in sorted(candidates):
        shown = _shown(path, here, run_dir)
        if shown and len(found) < _MOST_FILES:
            with contextlib.suppress(OSError):
                if path.is_file():
                    found.append(FileInfo(shown, path.stat().st_size))
    return found


def _shown(path: Path, here: Path, run_dir: Path) -> str:
    if path.is_relative_to(run_dir):
        return f"run_dir/{path.relative_to(run_dir)}"
    if "__pycache__" in path.parts or path.suffix == ".ipynb":  # the notebook itself is saved while it runs
        return ""
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return "" if str(path).startswith(("/proc/", "/dev/", "/sys/", "/tmp/")) else str(path)


def _walk(folder: Path) -> list[str]:
    return [os.path.join(root, name) for root, _dirs, names in os.walk(folder) for name in names][:_MOST_FILES]


def _newer(folder: Path, since_s: float) -> set[Path]:
    found: set[Path] = set()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith("."):  # of Jupyter and editors, which write beside the notebook, too
                    continue
                if entry.is_file() and entry.stat().st_mtime >= since_s:
                    found.add(Path(entry.path))
    return found


#: a filesystem that has not said so soon what is there hangs
_LOOK_S = 2.0


class WrittenPaths(msgspec.Struct, frozen=True):
    """Places where a cell may have written since ``since_s``: paths as the system has them."""

    opened: list[bytes]
    since_s: float
    run_dir: bytes
    here: bytes


def written_to(opened: Iterable[str], since_s: float, run_dir: Path) -> WrittenPaths:
    """Path as the rank knows it."""
    try:
        here = os.getcwdb()
    except FileNotFoundError:  # deleted
        here = os.fsencode(run_dir)
    return WrittenPaths([os.fsencode(path) for path in opened], since_s, os.fsencode(run_dir), here)


class FileListing:
    """Looks in a thread which files are there, beginning now."""

    def __init__(self, where: WrittenPaths, owner: UnixUser | None = None) -> None:
        """``owner``: it sees what this user may see; None: this process's own."""
        self._where = where
        self._owner = owner
        self._found: list[FileInfo] = []
        self._thread = threading.Thread(target=self._look, name="jgr-files", daemon=True)
        self._thread.start()

    def add_to_outcome(self, outcome: Outcome) -> Outcome:
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
        if self._owner is None:
            self._find()
            return
        from ...store.private_stores import file_identity

        with file_identity(self._owner.uid, self._owner.gid, self._owner.groups):
            self._find()

    def _find(self) -> None:
        where = self._where
        opened = [os.fsdecode(path) for path in where.opened]
        run_dir, here = Path(os.fsdecode(where.run_dir)), Path(os.fsdecode(where.here))
        self._found = written_files(opened, where.since_s, run_dir, here)


class WrittenFiles:
    """Remembers the files that Python code opened for writing (audit event ``open``)."""

    def __init__(self) -> None:
        self.start_recording()
        sys.addaudithook(self._hook)

    def start_recording(self) -> None:
        """Forget what was written so far, and by which process."""
        self.paths: dict[str, None] = {}
        self._pid = os.getpid()

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or os.getpid() != self._pid:
            return
        path, mode, flags = arguments
        writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool(flags & (os.O_WRONLY | os.O_RDWR))
        if writes and isinstance(path, (str, os.PathLike)):
            with contextlib.suppress(FileNotFoundError):  # the working folder is deleted: nothing will be written
                self.paths[os.path.abspath(path)] = None
