"""Files that a cell has open for writing: where it goes on in another process, nobody writes to them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

_FILES = "/proc/self/fd"
#: memory, no files
_IN_MEMORY = ("/memfd:", "/dev/shm/", "/dev/zero")


class WrittenFiles:
    """Files that have been opened for writing since this object was made, and are still open."""

    def __init__(self) -> None:
        self._before = set(_written())

    def left(self, known: Iterable[Any]) -> str:
        """The path of one that belongs to none of the ``known`` objects; empty: there is none.

        A mapped file is not meant: maps travel as places in files.
        """
        opened = [found for found in _written() if found not in self._before]
        if not opened:
            return ""
        mapped = _mapped()
        own = {number for thing in known for number in _numbers(thing)}
        paths = {path for thing in known for path in _paths(thing)}
        left = (path for number, path in opened if number not in own and path not in mapped and path not in paths)
        return next(left, "")


def _written() -> Iterator[tuple[int, str]]:
    """Numbers and paths of regular files that are open for writing."""
    for name in os.listdir(_FILES):
        with contextlib.suppress(OSError):  # closed meanwhile
            number, path = int(name), os.readlink(f"{_FILES}/{name}")
            if path.startswith(_IN_MEMORY) or not stat.S_ISREG(os.fstat(number).st_mode):
                continue
            with open(f"/proc/self/fdinfo/{name}") as facts:
                flags = int(facts.read().partition("flags:")[2].split()[0], 8)
            if flags & os.O_ACCMODE != os.O_RDONLY:
                yield number, path


def _mapped() -> set[str]:
    """Paths of files whose pages are shared with this process's memory."""
    with open("/proc/self/maps") as maps:
        rows = [line.rstrip("\n").split(maxsplit=5) for line in maps]
    return {row[5] for row in rows if len(row) == 6 and row[1].endswith("s")}


def _numbers(thing: Any) -> Iterator[int]:
    with contextlib.suppress(Exception):  # no file, a closed one, or the user's own class
        yield thing.fileno()


def _paths(thing: Any) -> Iterator[str]:
    for name in ("name", "filename"):
        with contextlib.suppress(Exception):
            path = getattr(thing, name)
            if isinstance(path, str | os.PathLike):
                yield os.path.realpath(path)
