"""A save that is killed at any of its steps: nothing half-written is ever seen, and the next save works."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from forked import forked

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store import blobs
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.graph_file import BLOB_BYTES, digest_in, open_graph, write_graph
from jupyter_gpu_release.store.run_folders import create_run_folder, read_manifest, write_manifest

RUN, NEXT = "20261121-101500-0123abcd", "20261121-101501-0123abcd"
CONTENT = [b"\1" * (3 * BLOB_BYTES), b"small", b"\2" * BLOB_BYTES]

#: every call that changes the store is a step; before the n-th (and, for a write, in its middle) the process is gone
_STEPS = ("open", "write", "fsync", "link", "replace", "unlink", "mkdir", "utime", "fchmod", "rename")


class Steps:
    """Counts the steps of this process, and ends it at one."""

    def __init__(self, stop_at: int) -> None:
        self._stop_at = stop_at
        self._lock = threading.Lock()
        self.done = 0

    def step(self) -> None:
        with self._lock:
            self.done += 1
            if self.done == self._stop_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def count(self, name: str) -> None:
        """Make each call of ``os.<name>`` a step; a write is two."""
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.step()
            if name == "write" and len(arguments[1]) > 1 and arguments[0] > 2:
                data = memoryview(arguments[1])
                written = real(arguments[0], data[: len(data) // 2])
                self.step()
                return written + real(arguments[0], data[written:])
            return real(*arguments, **options)

        setattr(os, name, call)


def save(stop_at: int, store: Path) -> int:
    """In a fork, whose ``os`` it may change; returns how that ended."""

    def work() -> None:
        steps = Steps(stop_at)
        for name in _STEPS:
            steps.count(name)
        blobs._WRITERS = 1  # the same steps each time
        paths = create_run_folder(store, RUN)
        digest = write_graph(paths.values, b"stream", CONTENT)
        write_manifest(paths, {"run": RUN, "state": "succeeded", "digest": digest}, durable=True)

    return forked(work)


def check_nothing_half_visible(store: Path) -> None:
    kept = BlobStore(store / "blobs")
    for info in kept.list_blobs():
        kept.verify_blob(info.digest)
        assert info.bytes in (3 * BLOB_BYTES, BLOB_BYTES)
    for folder in (store / "runs").glob("*"):
        paths = create_run_folder(store, folder.name)
        if paths.values.exists():
            opened = open_graph(paths.values, digest_in(paths.values), verify=True)
            assert [bytes(buffer) for buffer in opened.buffers] == CONTENT
        if paths.manifest.exists():  # written last: it names a graph that is whole
            digest = read_manifest(paths)["digest"]
            assert open_graph(paths.values, digest).stream == b"stream"
        else:
            with pytest.raises(StoreError, match=r"manifest\.json"):
                read_manifest(paths)


def check_garbage_is_found(store: Path) -> None:
    """All that a killed save leaves is in ``blobs/tmp``, is a blob that nobody refers to, or lies in a run's folder."""
    kept = BlobStore(store / "blobs")
    known = {kept.path_of(info.digest) for info in kept.list_blobs()}
    files = {path for path in store.rglob("*") if path.is_file()}
    elsewhere = [path for path in files - known if store / "runs" not in path.parents]
    assert all(path.parent == store / "blobs" / "tmp" for path in elsewhere)
    kept.sweep_temp(untouched_since_s=time.time() + 60)
    assert not [path for path in elsewhere if path.exists()]


def test_killed_at_every_step(tmp_path: Path) -> None:
    for stop_at in itertools.count(1):
        store = tmp_path / str(stop_at)
        store.mkdir()
        status = save(stop_at, store)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        check_nothing_half_visible(store)
        paths = create_run_folder(store, NEXT)  # the next save goes well, and shares what was finished
        digest = write_graph(paths.values, b"stream", CONTENT)
        write_manifest(paths, {"digest": digest}, durable=True)
        check_nothing_half_visible(store)
        assert read_manifest(paths)["digest"] == digest
        assert len(list(BlobStore(store / "blobs").list_blobs())) == 2
        check_garbage_is_found(store)
    assert stop_at > 30
    assert read_manifest(create_run_folder(store, RUN))["state"] == "succeeded"
