"""Freeing blobs that no run refers to, beside kernels and ranks that write and read: mark, look again, remove.

Safe without a lock because of one promise of :class:`.BlobStore`: whoever is about to refer to a blob touches it
first, and writes it anew when it is gone. So what was touched within the grace is never looked at, and what was touched
between our look and the removal comes back (:meth:`.BlobStore.remove_blob`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import StoreError
from ...settings.built_in import BUILT_IN
from ..blobs import BlobStore
from ..files import make_store_folder, open_new, open_plain
from ..run_contents import Footprint, graphs_of, measure_graph, run_folders
from ..run_folders import require_store

#: longer than any save takes; one that takes longer touches its blobs again
GRACE_S: float = BUILT_IN["unreferenced_kept_s"].default
_SIGNATURE = re.compile(rb"jgr-graph-([0-9]+)\n")
_NEWEST_GRAPH = 2
_MOST_NAMED = 20


@dataclass
class SweepResult:
    """The amount that a sweep freed, or would free. ``notes``: why something was left, for people."""

    blobs: int = 0
    bytes: int = 0
    notes: list[str] = field(default_factory=list)


def store_time_s(store: Path) -> float:
    """The present by the clock that gives files their times (of an NFS server, say)."""
    folder = store / "trash"
    require_store(store)
    make_store_folder(folder)
    probe = folder / f".clock-{secrets.token_hex(4)}"
    try:
        descriptor = open_new(probe, os.O_WRONLY | os.O_EXCL)
        try:
            return os.fstat(descriptor).st_mtime
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder}: {error.strerror}", hint="is the store full or read-only?"
        ) from error


def referenced_blobs(footprints: Iterable[Footprint]) -> set[str]:
    """The blobs that anything refers to.

    Raises :class:`StoreError` when a graph cannot be read that may be whole (of a newer version, or the filesystem is
    at fault): then nobody knows what is garbage. A damaged graph loads nowhere: what it named counts for nothing.
    """
    known: set[str] = set()
    unknown: list[tuple[Path, str]] = []
    for footprint in footprints:
        known.update(footprint.shared)
        unknown += [(footprint.folder, why) for path, why in footprint.unreadable.items() if _may_be_whole(path)]
    if unknown:
        more = f" (and {len(unknown) - 1} more graphs)" if len(unknown) > 1 else ""
        raise StoreError(
            f"no blob is freed: {unknown[0][1]}{more}",
            hint="upgrade jupyter_gpu_release, mend the file, or move away: "
            + ", ".join(sorted({str(folder) for folder, _ in unknown})[:_MOST_NAMED]),
        )
    return known


def _may_be_whole(path: Path) -> bool:
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            match = _SIGNATURE.match(file.read(32))
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno != errno.EINVAL  # no plain file: nobody can load it
    return match is not None and int(match[1]) > _NEWEST_GRAPH


def sweep_blobs(store: Path, footprints: list[Footprint], before_s: float, *, dry_run: bool = False) -> SweepResult:
    """Free the blobs that ``footprints`` do not refer to and that nobody touched since ``before_s`` (store's clock)."""
    swept = SweepResult()
    blobs = BlobStore(store / "blobs")
    try:
        known = referenced_blobs(footprints)
        garbage = [blob for blob in blobs.list_blobs() if blob.digest not in known and blob.touched_s < before_s]
        if garbage and not dry_run:
            known |= _second_look(store, footprints)
    except StoreError as error:
        swept.notes.append(str(error))
        return swept
    for blob in garbage:
        if dry_run or (blob.digest not in known and blobs.remove_blob(blob.digest, untouched_since_s=before_s)):
            swept.blobs += 1
            swept.bytes += blob.bytes
    if not dry_run:
        _bring_back(blobs, known)
        swept.bytes += blobs.sweep_temp(untouched_since_s=before_s)
    return swept


def _second_look(store: Path, footprints: list[Footprint]) -> set[str]:
    """The references of graphs that were finished since the first look."""
    seen = {graph for footprint in footprints for graph in footprint.graphs.items()}
    later = []
    for folder in run_folders(store):
        for path, changed_ns in graphs_of(folder):
            if (path, changed_ns) not in seen:
                later.append(Footprint(folder))
                measure_graph(later[-1], path)
    return referenced_blobs(later)


def _bring_back(blobs: BlobStore, known: set[str]) -> None:
    """A remover that was killed may have moved a blob aside that it would have brought back."""
    for left in (blobs.root / "tmp").glob("*.gone"):
        digest = left.name.partition(".")[0]
        if digest in known and not blobs.has(digest):
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(left, blobs.path_of(digest))
