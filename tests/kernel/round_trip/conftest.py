"""A notebook's names and one rank without cluster: see ``harness/round_trip.py``."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest
from round_trip import Notebook, RankServer


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankServer]:
    made = RankServer()
    yield made
    made.close()


@pytest.fixture
def nb(ranks: RankServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtins, "_", None, raising=False)  # `doctest` leaves one there
    monkeypatch.delattr(builtins, "_")
    return Notebook(ranks, tmp_path)
