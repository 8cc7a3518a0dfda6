"""Files of a run: those that it left in its ``run_dir``, and its records; no link is followed on the way to them."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from ...errors import NoSuchRunError
from ...protocol.runs import FileInfo
from ...store.layout import RunPaths

#: files of one run that a page lists
MOST_FILES = 500
#: entries of folders that are looked at for them, and folders in one another
_MOST_ENTRIES, _DEEPEST = 20_000, 50
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: a pipe without a writer must not be waited for
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def list_files(paths: RunPaths) -> list[FileInfo]:
    """Plain files in the run's folder, by name; links, what lies behind them, and names that are no text are left out.

    Of very many the ones nearest to the top.
    """
    found: list[FileInfo] = []
    folders: deque[tuple[str, ...]] = deque([()])
    left = _MOST_ENTRIES
    while folders and left > 0 and len(found) < MOST_FILES:
        below = folders.popleft()
        entries = _read_folder(paths, below, left)
        left -= len(entries) + 1
        for name, size in entries:
            if size is not None:
                found.append(FileInfo("/".join((*below, name)), size))
            elif len(below) < _DEEPEST:
                folders.append((*below, name))
    return sorted(found, key=lambda file: file.path)[:MOST_FILES]


def _read_folder(paths: RunPaths, below: tuple[str, ...], most: int) -> list[tuple[str, int | None]]:
    """Files with their sizes, and folders (None), by name."""
    try:
        folder = _open_folder(paths, paths.files.name, *below)
    except OSError:  # never made, collected, or not for this user
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(_sizes(islice(entries, most)))
    except OSError:
        return []
    finally:
        os.close(folder)


def _sizes(entries: Iterator[os.DirEntry[str]]) -> Iterator[tuple[str, int | None]]:
    for entry in entries:
        try:
            facts = entry.stat(follow_symlinks=False)
            entry.name.encode()
        except (OSError, UnicodeEncodeError):  # it is gone, as a checkpoint's first name; or it cannot be shown
            continue
        if stat.S_ISDIR(facts.st_mode):
            yield entry.name, None
        elif stat.S_ISREG(facts.st_mode):
            yield entry.name, facts.st_size


def open_file(paths: RunPaths, path: str) -> BinaryIO:
    """Open a plain file of the run's folder for reading; each part of ``path`` is looked up without following links.

    Raises :class:`NoSuchRunError` for anything else: a folder, a link, a way out of the folder.
    """
    parts = path.split("/")
    refusal = NoSuchRunError(f"there is no file {path[:200]} in the folder of run {paths.folder.name}")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise refusal
    try:
        return os.fdopen(_open_plain(paths, paths.files.name, *parts), "rb")
    except OSError as error:
        raise refusal from error


def open_record(path: Path) -> int:
    """A descriptor of the run's manifest or log, which may not be a link; raises OSError."""
    return _open_plain(RunPaths(path.parent), path.name)


def _open_plain(paths: RunPaths, *parts: str) -> int:
    folder = _open_folder(paths, *parts[:-1])
    try:
        descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file")


def _open_folder(paths: RunPaths, *below: str) -> int:
    """The way there begins at the store's root, which may be a link: a run cannot make that one."""
    runs = paths.folder.parent
    folder = os.open(runs.parent, _FOLDER)
    for part in (runs.name, paths.folder.name, *below):
        outer = folder
        try:
            folder = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=outer)
        finally:
            os.close(outer)
    return folder
