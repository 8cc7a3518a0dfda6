"""A ledger without a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from jupyter_gpu_release.gateway.db.database import open_ledger


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_ledger(tmp_path / "home" / "ledger.sqlite")
    yield engine
    engine.dispose()
