"""A look at the store before a cell gives up its GPU: which files the run has there, and how much room there is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ....units import format_bytes
from .run_files import file_lengths

#: a filesystem that has not answered by then hangs, and a GPU waits for it
_LOOK_S = 2.0


class StoreUnfitError(Exception):
    """Nothing can be saved there just now; says why."""


class StoreLook:
    """Looks in a thread; ``folder``: the run's files."""

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
