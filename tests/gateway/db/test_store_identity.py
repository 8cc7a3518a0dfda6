"""The gateway remembers which store it means, also over the store's absence."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.store_identity import meant_store
from jupyter_gpu_release.host.threads import StoreThreads
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.store.identity import expect_store
from jupyter_gpu_release.store.run_folders import make_store, require_store

Start = Callable[[], str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A life of the gateway that asks its ledger."""
    engine = database.open_ledger(tmp_path / "ledger.sqlite")
    config = GatewayConfig(str(tmp_path), str(tmp_path / "store"), "", "", "")

    def life() -> str:
        async def ask() -> str:
            return await meant_store(engine, config, StoreThreads())

        return asyncio.run(ask())

    yield life
    expect_store(tmp_path / "store", "")
    engine.dispose()


def test_a_store_that_was_unmounted_is_missed_and_known_again(start: Start, tmp_path: Path) -> None:
    store, away = tmp_path / "store", tmp_path / "away"
    ident = start()
    require_store(store)
    store.rename(away)
    assert start() == ident
    assert not store.exists()
    (store / "runs").mkdir(parents=True)  # below the mount point
    assert start() == ident
    with pytest.raises(StoreError, match=f"what lies at {store} is not the store"):
        require_store(store)
    shutil.rmtree(store)
    away.rename(store)
    require_store(store)


def test_a_store_from_before_there_were_ids_is_adopted_when_it_is_there(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "store"
    engine = database.open_ledger(tmp_path / "ledger.sqlite")
    with engine.begin() as connection:
        database.write_meta(connection, "store", str(store))
    engine.dispose()
    assert start() == ""
    assert not store.exists()
    (store / "runs" / "20260101-000000-00000001").mkdir(parents=True)
    assert start() == start() == make_store(store) != ""


def test_a_store_that_a_group_shares_is_no_longer_one_users_unless_that_is_said(start: Start, tmp_path: Path) -> None:
    start()
    (tmp_path / "store" / "runs").chmod(0o2770)
    with pytest.raises(StoreError, match="a group shares the store") as raised:
        start()
    assert "JUPYTER_GPU_STORE_MODE=group" in raised.value.hint
