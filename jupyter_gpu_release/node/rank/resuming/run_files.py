"""Files of a run's folder, as a save knows them: their lengths, and the room beside them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from ....units import format_bytes

#: a filesystem that has not answered by then hangs, and a GPU waits for it
_LOOK_S = 2.0


class StoreUnfitError(Exception):
    """Nothing can be saved there just now; says why."""


class FilesSnapshot:
    """Looks at ``folder``, the run's files, in a thread: a store that hangs must not hold up the cell."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lengths: dict[str, int] = {}
        self._free_bytes = 0
        self._problem = "the store does not answer"
        thread = threading.Thread(target=self._look, name="jgr-save", daemon=True)
        thread.start()
        self._thread = thread

    def lengths(self) -> dict[str, int]:
        """Lengths of the run's files; raises StoreUnfitError."""
        self._thread.join(_LOOK_S)
        if self._problem:
            raise StoreUnfitError(self._problem)
        return self._lengths

    def expect_room(self, size: int) -> None:
        """Raise StoreUnfitError if there is no room for so many bytes."""
        if size > self._free_bytes:
            free, needed = format_bytes(self._free_bytes), format_bytes(size)
            raise StoreUnfitError(f"the store has {free} free, and {needed} are needed")

    def _look(self) -> None:
        try:
            self._lengths = file_lengths(self._folder)
            facts = os.statvfs(self._folder)
            self._free_bytes = facts.f_bavail * facts.f_frsize
        except OSError as error:
            self._problem = f"the store cannot be read: {error.strerror}"
        else:
            self._problem = ""


def file_lengths(folder: Path) -> dict[str, int]:
    """Path below ``folder`` → length."""
    found: dict[str, int] = {}
    for root, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found[os.path.relpath(path, folder)] = os.lstat(path).st_size
    return found


def set_back(folder: Path, lengths: Mapping[str, int]) -> None:
    """Cut files to these lengths, and remove those that have none. What is shorter stays so."""
    for name, length in file_lengths(folder).items():
        path = folder / name
        if name not in lengths:
            path.unlink(missing_ok=True)
        elif length > lengths[name] and not path.is_symlink():
            os.truncate(path, lengths[name])
