"""A store is known by its id, so that another one (or a plain folder) in its place is not written to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store.identity import expect_store
from jupyter_gpu_release.store.run_folders import make_store, require_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    store = tmp_path / "store"
    expect_store(store, make_store(store))
    yield store
    expect_store(store, "")


def test_the_first_who_makes_it_names_it(store: Path) -> None:
    name = json.loads((store / "store.json").read_text())
    assert (name["schema_version"], len(name["id"]), name["created_at"] > 0) == (1, 16, True)
    assert make_store(store) == name["id"]
    assert [path.name for path in store.iterdir() if path.name.startswith(".")] == []
    require_store(store)


def test_one_from_before_there_were_ids_gets_one(tmp_path: Path) -> None:
    (tmp_path / "runs" / "20260101-000000-00000001").mkdir(parents=True)
    require_store(tmp_path)
    assert make_store(tmp_path) == make_store(tmp_path) != ""


def _plain(store: Path) -> None:
    (store / "store.json").unlink()


def _another(store: Path) -> None:
    _plain(store)
    make_store(store)


def _damaged(store: Path) -> None:
    (store / "store.json").write_text("{")


def _newer(store: Path) -> None:
    (store / "store.json").write_text('{"schema_version": 2, "id": "a", "created_at": 0}')


@pytest.mark.parametrize(
    ("change", "why"), [(_plain, "no store.json"), (_another, "another"), (_damaged, "damaged"), (_newer, "version 2")]
)
def test_what_lies_in_its_place_is_not_written_to(store: Path, change: Callable[[Path], None], why: str) -> None:
    os.utime(store / "store.json", (1, 1))  # what comes in its place is younger, however coarse the clock
    require_store(store)
    change(store)
    with pytest.raises(StoreError, match=why) as raised:
        require_store(store)
    assert str(store) in str(raised.value)
    assert raised.value.hint


def test_an_empty_file_accepts_what_lies_there(store: Path) -> None:
    (store / "store.json").write_text("")
    with pytest.raises(StoreError, match="is not the store"):
        require_store(store)
    expect_store(store, make_store(store))
    require_store(store)
