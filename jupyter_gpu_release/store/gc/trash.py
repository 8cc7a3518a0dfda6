"""Removing results in two steps: out of sight in one rename each, then deleted. Goes on after a crash at any point.

The run's manifest stays in its place and says when and why the rest went, so that ``runs show`` and lineage keep
answering. Everything else is moved to ``<store>/trash/<run id>/`` and deleted there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ...errors import StoreError
from ...protocol.states import is_run_id
from ..files import make_store_folder
from ..layout import RunPaths
from ..run_folders import read_manifest, require_store, write_manifest

_MANIFEST = "manifest.json"
#: moved first: a reader must not find a graph whose other files are gone
_FIRST = ("values.graph", "inputs.graph", "published")


class Trash:
    """``<store>/trash``. Nothing in it is anybody's any more."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.folder = store / "trash"

    def make_folder(self) -> None:
        """Make the folder; refuses a link in its place."""
        require_store(self._store)
        make_store_folder(self.folder)
        if self.folder.is_symlink():
            raise StoreError(f"{self.folder} is a symbolic link: nothing is moved there", hint="remove the link")

    def remove_results(self, run: str, reason: str, now_s: float) -> None:
        """Remove all of the run but its manifest, which says so; may be repeated until it succeeds."""
        paths = RunPaths.of(self._store, run)
        if paths.folder.is_symlink():
            raise StoreError(f"{paths.folder} is a symbolic link: not touched", hint="remove the link by hand")
        self.make_folder()
        if paths.folder.is_dir():
            _mark(paths, reason, now_s)
            self._move(paths.folder, [entry for entry in _in_order(paths.folder) if entry != _MANIFEST])
        self.delete_entry(run)

    def remove_folder(self, run: str) -> None:
        """Remove the whole folder of a run that never came to be."""
        folder = RunPaths.of(self._store, run).folder
        if folder.is_symlink() or not folder.is_dir():
            return
        self.make_folder()
        self._move(folder, _in_order(folder))
        with contextlib.suppress(OSError):  # somebody writes there after all
            folder.rmdir()
        self.delete_entry(run)

    def delete_entry(self, name: str) -> None:
        """Delete one entry of the trash; fine when it is not there."""
        path = self.folder / name
        try:
            if path.is_dir() and not path.is_symlink():
                _open_folders(path)
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot delete {error.filename or path}: {error.strerror}", hint=_MEND) from error

    def unfinished_runs(self) -> Iterator[str]:
        """Runs of which something is still to be deleted."""
        with contextlib.suppress(FileNotFoundError):
            yield from (name for name in os.listdir(self.folder) if is_run_id(name))

    def _move(self, folder: Path, entries: list[str]) -> None:
        target = self.folder / folder.name
        for number, entry in enumerate(entries):
            try:
                make_store_folder(target)  # each time: another gateway on this store may empty the trash meanwhile
                os.rename(folder / entry, _free(target, entry, number))
            except FileNotFoundError as error:
                if os.path.lexists(folder / entry):
                    raise StoreError(f"{target} was removed while {entry} was moved there", hint=_MEND) from error
            except OSError as error:
                raise StoreError(f"cannot move {folder / entry} away: {error.strerror}", hint=_MEND) from error


_MEND = "check owner and rights; `jupyter gpu gc` goes on from there"


def _in_order(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # another gateway on this store took it
        return []
    return sorted(names, key=lambda name: (name not in _FIRST, name))


def _free(target: Path, entry: str, number: int) -> Path:
    """A name in the trash; an earlier attempt may have left one of the same there."""
    path = target / entry
    return target / f"{number}-{os.getpid()}-{entry}" if path.exists() or path.is_symlink() else path


def _mark(paths: RunPaths, reason: str, now_s: float) -> None:
    """A manifest that cannot be read is left as it is: the ledger knows that the results went."""
    try:
        manifest = read_manifest(paths)
    except StoreError:
        return
    if "collected_at" not in manifest:
        manifest.pop("schema_version")
        write_manifest(paths, manifest | {"collected_at": now_s, "collected_because": reason}, durable=True)


def _open_folders(path: Path) -> None:
    """Cells may have made folders that not even their owner may write to."""
    for folder, _folders, _names in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
