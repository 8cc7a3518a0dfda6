"""Which files a cell writes."""

from __future__ import annotations

import os
import sys
from typing import Any


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
