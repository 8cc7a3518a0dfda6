"""Files that a run left in its ``run_dir``: listed and opened without following a link out of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

from ...errors import NoSuchRunError
from ...protocol.runs import FileInfo
from ...store.layout import RunPaths

#: files of one run that a page lists
MOST_FILES = 500
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: a pipe without a writer must not be waited for
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def list_files(paths: RunPaths) -> list[FileInfo]:
    """Plain files in the run's folder, by name; links, and what lies behind them, are left out."""
    found = []
    for path, facts in _walk(str(paths.files), ""):
        found.append(FileInfo(path, facts.st_size))
        if len(found) == MOST_FILES:
            break
    return sorted(found, key=lambda file: file.path)


def _walk(folder: str, below: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # never made, collected, or not for this user
        return
    for entry in entries:
        path = f"{below}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{path}/")
        elif entry.is_file(follow_symlinks=False):
            yield path, entry.stat(follow_symlinks=False)


def open_file(paths: RunPaths, path: str) -> BinaryIO:
    """Open a plain file of the run's folder for reading; each part of ``path`` is looked up without following links.

    Raises :class:`NoSuchRunError` for anything else: a folder, a link, a way out of the folder.
    """
    parts = path.split("/")
    refusal = NoSuchRunError(f"there is no file {path[:200]} in the folder of run {paths.folder.name}")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise refusal
    folder = -1
    try:
        folder = os.open(paths.files, _FOLDER)
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
    except OSError as error:
        raise refusal from error
    finally:
        if folder >= 0:
            os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refusal
    return os.fdopen(descriptor, "rb")
