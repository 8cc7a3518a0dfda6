"""Data files that a cell reads, named by it with ``track(path)``: what they were then, and whether they still are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from blake3 import blake3

from ..protocol.lineage import TrackedFile
from ..settings.built_in import BUILT_IN

#: files below one tracked folder
MOST_FILES: int = BUILT_IN["tracked_files"].default
_STEP = 8 << 20
#: a larger file's digest uses two threads
_LARGE_BYTES = 4 << 20

PathLike = TypeVar("PathLike", str, "os.PathLike[str]")
_Stamp = tuple[int, int, int, int]


class FileDigests:
    """blake3-256 of files; one that is by its inode, size and times what it was is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, TrackedFile]] = {}

    def read_file(self, path: str) -> TrackedFile:
        """A file as it is now; raises ``OSError``. The digest is empty when it changes while it is read."""
        before = _stamp(path)
        known = self._known.get(path)
        if known is not None and known[0] == before:
            return known[1]
        digest = _digest(path)
        is_stable = _stamp(path) == before
        found = TrackedFile(path, before[1], digest if is_stable else "", before[2])
        if is_stable:
            self._known[path] = (before, found)
        return found

    def read_folder(self, folder: str) -> list[TrackedFile]:
        """The folder itself (its path ends with ``/``; its digest is over names and digests), then each file in it.

        Raises ``OSError``, and ``ValueError`` for more than ``MOST_FILES``.
        """
        files = [self.read_file(path) for path in _files_below(folder)]
        total = blake3()
        for file in files:
            total.update(
                f"{os.path.relpath(file.path, folder)}\0{file.bytes}\0{file.digest}\n".encode(errors="replace")
            )
        digest = "" if any(not file.digest for file in files) else str(total.hexdigest())
        size, changed = sum(file.bytes for file in files), os.stat(folder).st_mtime_ns
        return [TrackedFile(folder.rstrip("/") + "/", size, digest, changed), *files]

    def explain_change(self, tracked: TrackedFile) -> str:
        """The reason why a tracked file or folder is not what it was, in words; empty when it is."""
        try:
            now = self.read_folder(tracked.path)[0] if tracked.path.endswith("/") else self.read_file(tracked.path)
        except FileNotFoundError:
            return f"{tracked.path} is not there"
        except (OSError, ValueError) as error:
            return f"{tracked.path} cannot be read from here: {getattr(error, 'strerror', None) or error}"
        same = tracked.digest and (now.bytes, now.digest) == (tracked.bytes, tracked.digest)
        return "" if same else f"{tracked.path} has changed"


class Tracking:
    """A record of what the cell of this process has tracked; nothing is recorded before :meth:`start_recording`."""

    def __init__(self) -> None:
        self._digests = FileDigests()
        self._found: dict[str, TrackedFile] | None = None

    def start_recording(self) -> None:
        """A cell starts in this process."""
        self._found = {}

    def tracked_files(self) -> list[TrackedFile]:
        """Everything that was tracked, in order; an empty digest: it changed while the cell ran."""
        return list((self._found or {}).values())

    def track_path(self, path: PathLike) -> PathLike:
        """Record a data file (or all files below a folder) as an input of this run; returns ``path``.

        Outside of a GPU cell it only returns ``path``. Raises ``FileNotFoundError``, and ``ValueError`` for a folder
        with more than ``MOST_FILES`` files.
        """
        if self._found is None:
            return path
        where = os.path.abspath(os.fspath(path))
        if not os.path.exists(where):
            raise FileNotFoundError(2, "track(): there is no such file or folder on this node", where)
        entries = self._digests.read_folder(where) if os.path.isdir(where) else [self._digests.read_file(where)]
        for entry in entries:
            before = self._found.get(entry.path)
            is_same = before is None or before.digest == entry.digest
            self._found[entry.path] = entry if is_same else TrackedFile(entry.path, entry.bytes, "", entry.mtime_ns)
        return path


#: this process's own
HERE = Tracking()


def track(path: PathLike) -> PathLike:
    """Record a data file that this GPU cell reads (or all files below a folder) as an input of its run.

    Size, blake3 digest and time of change are in the run's manifest; ``--cache`` runs the cell again when they differ.
    Outside of a GPU cell it only returns ``path``.

    Parameters
    ----------
    path : str or path-like
        Seen from the folder in which the cell runs.

    Returns
    -------
    str or path-like
        ``path``, so it can stand around it: ``pd.read_csv(track("data.csv"))``.

    Raises
    ------
    FileNotFoundError
        There is no such file on the node.
    ValueError
        The folder has more than 10,000 files.
    """
    return HERE.track_path(path)


track.__module__ = __package__.partition(".")[0]  # by which pickles name it


def _stamp(path: str) -> _Stamp:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _digest(path: str) -> str:
    with Path(path).open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        digest = blake3(max_threads=2 if size > _LARGE_BYTES else 1)
        buffer = bytearray(min(_STEP, max(size, 1)))
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return str(digest.hexdigest())


def _files_below(folder: str) -> list[str]:
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        found += [path for name in sorted(names) if os.path.isfile(path := os.path.join(root, name))]
        if len(found) > MOST_FILES:
            raise ValueError(
                f"track(): more than {MOST_FILES} files below {folder}; track an archive or a list of them instead"
            )
    return found
