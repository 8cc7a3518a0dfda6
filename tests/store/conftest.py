"""A store with one run, and that run exported."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bundle_bed import export, make_run


@pytest.fixture(autouse=True)
def no_file_stays_open() -> Iterator[None]:
    """A kernel loads results all day: each must be closed again."""
    before = _open_files()
    yield
    if left := _open_files() - before:
        gc.collect()
        left = _open_files() - before
    assert not left


def _open_files() -> set[str]:
    folder = Path("/proc/self/fd")
    return {f"{name} {os.readlink(folder / name)}" for name in os.listdir(folder) if (folder / name).is_symlink()}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def bundle(store: Path, tmp_path: Path) -> Path:
    make_run(store)
    export(store, tmp_path / "run.tar")
    return tmp_path / "run.tar"
