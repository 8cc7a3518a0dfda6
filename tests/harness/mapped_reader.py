"""A process of its own that has a blob mapped and can cut it short: a mistake there would end the tests."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

RUN = "20261121-101500-0123abcd"
SIZE = 32 << 20

_BEGIN = """
import faulthandler, os, signal, sys, threading, time
faulthandler.enable()
from pathlib import Path
from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store.graph_file import blobs_of, open_graph, write_graph
from jupyter_gpu_release.store.run_folders import create_run_folder
from jupyter_gpu_release.store.blobs import BlobStore

store, size = Path(sys.argv[1]), int(sys.argv[2])
path = create_run_folder(store, sys.argv[3]).values
digest = write_graph(path, b"s", [b"\\1" * size])
blob = BlobStore(store / "blobs").path_of(blobs_of(path)[0][0])
view = open_graph(path, digest).buffers[0]

def cut(length):
    blob.chmod(0o600)
    os.truncate(blob, length)

def wait_for_error(seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    print("no error came")
"""


def play(store: Path, body: str, *, size: int = SIZE) -> subprocess.CompletedProcess[str]:
    script = _BEGIN + textwrap.dedent(body)
    command = [sys.executable, "-c", script, str(store), str(size), RUN]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stdout.splitlines()
