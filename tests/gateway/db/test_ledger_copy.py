"""The ledger's copy on the store: whole while the ledger is in use, and taken where there is no ledger."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from sqlalchemy.engine import Engine

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.gateway.db import database, ledger_copy
from jupyter_gpu_release.gateway.db.ledger_copy import LedgerCopy, copy_path, ledger_path, restore_ledger
from jupyter_gpu_release.host.threads import StoreThreads
from jupyter_gpu_release.protocol.config import GatewayConfig

Until = Callable[..., None]


@pytest.fixture
def config(tmp_path: Path) -> GatewayConfig:
    (tmp_path / "store").mkdir()
    home = tmp_path / "home"
    return GatewayConfig(
        str(home), str(tmp_path / "store"), str(home / "token"), str(tmp_path), "10.0.0.1:6379", embedded=False
    )


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies follow each other without a pause."""
    monkeypatch.setattr(ledger_copy, "_APART_S", 0.0)
    monkeypatch.setattr(ledger_copy, "_APART_TIMES", 0.0)


def _note(engine: Engine, value: str) -> None:
    with engine.begin() as connection:
        database.write_meta(connection, "noted", value)


def _noted(path: Path) -> str | None:
    engine = database.open_ledger(path)
    try:
        with engine.connect() as connection:
            return database.read_meta(connection, "noted")
    finally:
        engine.dispose()


async def _copied(copying: LedgerCopy, is_there: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not is_there():
        assert time.monotonic() < deadline_s
        copying.look()
        await asyncio.sleep(0.01)


@pytest.mark.usefixtures("at_once")
def test_what_is_committed_while_the_ledger_is_in_use_is_in_the_copy_that_a_new_head_takes(
    config: GatewayConfig,
) -> None:
    engine = database.open_ledger(ledger_path(config))
    copy = copy_path(config)

    async def play() -> None:
        copying = LedgerCopy(config, StoreThreads())
        for value in ("first", "second"):
            _note(engine, value)
            with engine.connect() as reader:
                reader.exec_driver_sql("SELECT * FROM meta").fetchall()
                await _copied(copying, lambda value=value: copy.exists() and _noted(copy) == value)
        written = copy.stat().st_mtime_ns
        for _ in range(20):
            copying.look()
            await asyncio.sleep(0.01)
        assert copy.stat().st_mtime_ns == written, "nothing has changed"

    asyncio.run(play())
    engine.dispose()
    assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for file in ledger_path(config).parent.iterdir():
        file.unlink()
    restore_ledger(config)
    assert ledger_path(config).stat().st_mode & 0o777 == 0o600
    assert _noted(ledger_path(config)) == "second"


def test_a_ledger_that_is_there_is_not_replaced_and_one_without_a_copy_begins_anew(config: GatewayConfig) -> None:
    restore_ledger(config)
    assert not ledger_path(config).exists()
    engine = database.open_ledger(ledger_path(config))
    _note(engine, "copied")
    ledger_copy.copy_ledger(ledger_path(config), copy_path(config))
    _note(engine, "newer")
    engine.dispose()
    restore_ledger(config)
    assert _noted(ledger_path(config)) == "newer"


def test_clusters_that_share_a_store_have_a_copy_each(config: GatewayConfig) -> None:
    others = [
        msgspec.structs.replace(config, home=f"{config.home}-2"),
        msgspec.structs.replace(config, ray_address="10.0.0.2:6379"),
    ]
    assert len({copy_path(one) for one in (config, *others)}) == 3


def test_what_a_head_at_another_address_has_left_goes_after_a_month(config: GatewayConfig) -> None:
    month_ago_s = time.time() - 31 * 86400
    moved = [msgspec.structs.replace(config, ray_address=f"10.0.1.{number}:6379") for number in (1, 2)]
    of_another_home = msgspec.structs.replace(config, home=f"{config.home}-2")
    engine = database.open_ledger(ledger_path(config))
    for one in (*moved, of_another_home):
        ledger_copy.copy_ledger(ledger_path(config), copy_path(one))
    for one in (moved[0], of_another_home):
        os.utime(copy_path(one), (month_ago_s, month_ago_s))
    ledger_copy.copy_ledger(ledger_path(config), copy_path(config))
    engine.dispose()
    assert [copy_path(one).exists() for one in (*moved, of_another_home, config)] == [False, True, True, True]


@pytest.mark.usefixtures("at_once")
def test_a_store_that_refuses_gets_the_copy_when_it_is_well_again(
    config: GatewayConfig, caplog: pytest.LogCaptureFixture
) -> None:
    engine = database.open_ledger(ledger_path(config))
    _note(engine, "kept")
    in_the_way = copy_path(config).parent
    in_the_way.write_text("")

    async def play() -> None:
        copying = LedgerCopy(config, StoreThreads())
        await _copied(copying, lambda: "the ledger is not copied to the store" in caplog.text)
        in_the_way.unlink()
        await _copied(copying, copy_path(config).exists)

    asyncio.run(play())
    engine.dispose()
    assert _noted(copy_path(config)) == "kept"
    assert list(ledger_path(config).parent.glob("*.copy")) == []


def test_a_copy_that_cannot_be_read_is_an_error_with_its_cure(config: GatewayConfig) -> None:
    copy_path(config).parent.mkdir(mode=0o700)
    copy_path(config).mkdir()
    with pytest.raises(StoreError, match="cannot be read") as raised:
        restore_ledger(config)
    assert "start a new ledger" in raised.value.hint


def test_a_cluster_of_one_machine_has_no_copy(config: GatewayConfig) -> None:
    alone = msgspec.structs.replace(config, embedded=True)
    engine = database.open_ledger(ledger_path(alone))
    ledger_copy.copy_ledger(ledger_path(alone), copy_path(alone))
    engine.dispose()
    ledger_path(alone).unlink()
    restore_ledger(alone)
    assert not ledger_path(alone).exists()

    async def play() -> None:
        before = copy_path(alone).stat().st_mtime_ns
        copying = LedgerCopy(alone, StoreThreads())
        for _ in range(20):
            copying.look()
            await asyncio.sleep(0.01)
        assert copy_path(alone).stat().st_mtime_ns == before

    asyncio.run(play())


def _open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def _of_another(folder: Path) -> None:
    os.chown(folder, 12345, 12345)


def _linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.parametrize("plant", [_open_to_all, _of_another, _linked])
def test_a_ledger_that_another_could_have_put_there_is_not_taken(
    config: GatewayConfig, plant: Callable[[Path], None]
) -> None:
    if plant is _of_another and os.geteuid():
        pytest.skip("only root gives folders away")
    engine = database.open_ledger(ledger_path(config))
    _note(engine, "of the service")
    ledger_copy.copy_ledger(ledger_path(config), copy_path(config))
    engine.dispose()
    for file in Path(config.home).iterdir():
        file.unlink()
    plant(copy_path(config).parent)
    with pytest.raises(StoreError, match="not this service's alone"):
        restore_ledger(config)
    assert not ledger_path(config).exists()
    plain = Path(config.home) / "other.sqlite"
    database.open_ledger(plain).dispose()
    with pytest.raises(StoreError, match="not this service's alone"):
        ledger_copy.copy_ledger(plain, copy_path(config))
