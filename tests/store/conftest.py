"""A store with one run, and that run exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_bed import export, make_run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def bundle(store: Path, tmp_path: Path) -> Path:
    make_run(store)
    export(store, tmp_path / "run.tar")
    return tmp_path / "run.tar"
