"""A save that is killed at any of its steps: nothing half-written is ever seen, and the next save works."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.storage.blobs import BlobStore
from jupyter_gpu_release.storage.graph_file import BLOB_BYTES, digest_in, open_graph, write_graph
from jupyter_gpu_release.storage.runs import create_run_folder, read_manifest, write_manifest

RUN, NEXT = "20261121-101500-0123abcd", "20261121-101501-0123abcd"
CONTENT = [b"\1" * (3 * BLOB_BYTES), b"small", b"\2" * BLOB_BYTES]

#: every call that changes the store is one step; before the n-th (and, for a write, in its middle) the process is gone
_SAVE = """
import os, signal, sys, threading
from pathlib import Path
from jupyter_gpu_release.storage import blobs, graph_file
from jupyter_gpu_release.storage.runs import create_run_folder, write_manifest

stop_at, store, run = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
lock, done = threading.Lock(), [0]

def step():
    with lock:
        done[0] += 1
        if done[0] == stop_at:
            os.kill(os.getpid(), signal.SIGKILL)

def stopping(name):
    real = getattr(os, name)
    def call(*arguments, **options):
        step()
        if name == "write" and len(arguments[1]) > 1 and arguments[0] > 2:
            data = memoryview(arguments[1])
            written = real(arguments[0], data[: len(data) // 2])
            step()
            return written + real(arguments[0], data[written:])
        return real(*arguments, **options)
    setattr(os, name, call)

for name in ("open", "write", "fsync", "link", "replace", "unlink", "mkdir", "utime", "fchmod", "rename"):
    stopping(name)
paths = create_run_folder(store, run)
content = [b"\\1" * (3 << 20), b"small", b"\\2" * (1 << 20)]
blobs._WRITERS = 1  # the same steps each time
digest = graph_file.write_graph(paths.values, b"stream", content)
write_manifest(paths, {"run": run, "state": "succeeded", "digest": digest}, durable=True)
print(done[0])
"""


def save(stop_at: int, store: Path, run: str = RUN) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _SAVE, str(stop_at), str(store), run]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def check_nothing_half_visible(store: Path) -> None:
    blobs = BlobStore(store / "blobs")
    for info in blobs.scan():
        blobs.verify(info.digest)
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
    blobs = BlobStore(store / "blobs")
    known = {blobs.path_of(info.digest) for info in blobs.scan()}
    files = {path for path in store.rglob("*") if path.is_file()}
    elsewhere = [path for path in files - known if store / "runs" not in path.parents]
    assert all(path.parent == store / "blobs" / "tmp" for path in elsewhere)
    blobs.sweep_temp(untouched_since_s=time.time() + 60)
    assert not [path for path in elsewhere if path.exists()]


def test_killed_at_every_step(tmp_path: Path) -> None:
    for stop_at in itertools.count(1):
        store = tmp_path / str(stop_at)
        store.mkdir()
        killed = save(stop_at, store)
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        check_nothing_half_visible(store)
        paths = create_run_folder(store, NEXT)  # the next save goes well, and shares what was finished
        digest = write_graph(paths.values, b"stream", CONTENT)
        write_manifest(paths, {"digest": digest}, durable=True)
        check_nothing_half_visible(store)
        assert read_manifest(paths)["digest"] == digest
        assert len(list(BlobStore(store / "blobs").scan())) == 2
        check_garbage_is_found(store)
    assert stop_at > 30
    assert read_manifest(create_run_folder(store, RUN))["state"] == "succeeded"
