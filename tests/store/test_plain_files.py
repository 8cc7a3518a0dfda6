"""A pipe in the place of a run's files: an error, and nobody waits for ever (a hang is ended by the alarm)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store.event_log import read_events
from jupyter_gpu_release.store.gc.sweep import referenced_blobs
from jupyter_gpu_release.store.graph_file import open_graph
from jupyter_gpu_release.store.run_contents import measure_folder
from jupyter_gpu_release.store.run_folders import create_run_folder, read_manifest


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    signal.alarm(20)
    yield
    signal.alarm(0)


def test_pipes_are_refused(tmp_path: Path) -> None:
    paths = create_run_folder(tmp_path, "20260101-000000-00000001")
    for path in (paths.values, paths.manifest, paths.events):
        os.mkfifo(path)
    with pytest.raises(StoreError, match="no plain file"):
        open_graph(paths.values, "0" * 32)
    with pytest.raises(StoreError, match="no plain file"):
        read_manifest(paths)
    with pytest.raises(StoreError, match="no plain file"):
        list(read_events(paths.events))
    assert referenced_blobs([measure_folder(paths.folder)]) == set()  # a collection goes on
