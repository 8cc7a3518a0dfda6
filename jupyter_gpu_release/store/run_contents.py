"""Contents of each run folder, and the blobs that its graphs refer to. Reads names, sizes and indexes, never values."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import StoreError
from ..protocol.states import is_run_id
from .graph_file import blobs_of

_GRAPH = ".graph"
_TEMP = ".tmp"


@dataclass
class Footprint:
    """One run folder. ``unreadable``: graphs whose references are not known, with the reason."""

    folder: Path
    own_bytes: int = 0
    #: digest of a blob, or ``inode <number>`` of a file with several names, → bytes
    shared: dict[str, int] = field(default_factory=dict)
    has_manifest: bool = False
    #: newest change of anything in it (unix seconds)
    changed_at: float = 0.0
    #: left by writers that died: (path, changed at)
    temp_files: list[tuple[Path, float]] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)
    #: graph → when it was changed (ns)
    graphs: dict[Path, int] = field(default_factory=dict)


def run_folders(store: Path) -> Iterator[Path]:
    """Real folders with the name of a run; links are not followed (nor counted, nor removed)."""
    try:
        entries = list(os.scandir(store / "runs"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot list {store / 'runs'}: {error.strerror}", hint="is the store mounted?") from error
    for entry in entries:
        if is_run_id(entry.name) and entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def measure_folder(folder: Path) -> Footprint:
    """Look at one run folder; what vanishes meanwhile is left out."""
    found = Footprint(folder)
    for root, names in _walk(folder):
        for name in names:
            path = Path(root, name)
            try:
                facts = path.lstat()
            except OSError:
                continue
            _add(found, path, facts)
    return found


def _walk(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for root, folders, names in os.walk(folder):
        yield root, [*names, *(name for name in folders if os.path.islink(os.path.join(root, name)))]


def _add(found: Footprint, path: Path, facts: os.stat_result) -> None:
    found.changed_at = max(found.changed_at, facts.st_mtime)
    if not stat.S_ISREG(facts.st_mode):
        return
    if path.name.startswith(".") and path.name.endswith(_TEMP):
        found.temp_files.append((path, facts.st_mtime))
    if facts.st_nlink > 1:
        found.shared[f"inode {facts.st_dev}:{facts.st_ino}"] = facts.st_size
    else:
        found.own_bytes += facts.st_size
    found.has_manifest |= path == found.folder / "manifest.json"
    if _is_graph(found.folder, path):
        found.graphs[path] = facts.st_mtime_ns
        measure_graph(found, path)


def _is_graph(folder: Path, path: Path) -> bool:
    """Tell if a file is a graph of the run. What the cell itself wrote (``files/``) is none, whatever its name."""
    return path.suffix == _GRAPH and path.relative_to(folder).parts[0] not in ("files", "code")


def graphs_of(folder: Path) -> Iterator[tuple[Path, int]]:
    """The run's graphs and when each was changed (ns)."""
    for path in [*folder.glob(f"*{_GRAPH}"), *folder.glob(f"published/**/*{_GRAPH}")]:
        try:
            yield path, path.lstat().st_mtime_ns
        except OSError:
            continue


def measure_graph(found: Footprint, path: Path) -> None:
    """Note which blobs a graph refers to."""
    try:
        found.shared |= dict(blobs_of(path))
    except StoreError as error:
        if path.exists():
            found.unreadable[path] = error.message
