"""Blobs on a filesystem that another machine serves (here: FUSE) are mapped as well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from hanging_fs import HangingStore, hanging_store
from mapped_reader import lines, play

from jupyter_gpu_release.store.blobs import BlobStore

_SIZE = 10 << 30


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[HangingStore]:
    with hanging_store(tmp_path) as made:
        yield made


def test_ten_gigabytes_that_nobody_touches_cost_no_memory(remote: HangingStore) -> None:
    digest = "ab" * 32
    path = BlobStore(remote.path).path_of(digest)
    path.parent.mkdir()
    path.touch()
    os.truncate(path, _SIZE)
    before = psutil.Process().memory_info().rss
    array = np.frombuffer(BlobStore(remote.path).map_blob(digest, _SIZE), "u1")
    assert array.nbytes == _SIZE
    assert psutil.Process().memory_info().rss - before < 50 << 20


def test_a_server_that_is_gone_is_an_error_and_the_process_lives(remote: HangingStore) -> None:
    body = f"""
    with open(blob, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    os.kill({remote.server_pid}, signal.SIGKILL)
    try:
        bytes(view)
        wait_for_error()
    except StoreError as error:
        print("cannot be read any more" in error.message)
    print(view[size - 1])
    """
    assert lines(play(remote.path, body)) == ["True", "0"]
