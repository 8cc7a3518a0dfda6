"""The store that the gateway means by its path: kept in the ledger, so that another one in its place is noticed."""

from __future__ import annotations

import contextlib
import logging
import time
from functools import partial
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Engine

from ...errors import StoreError, StoreSilentError
from ...host.accounts import group_id
from ...host.threads import StoreThreads
from ...protocol.config import GatewayConfig, StoreMode
from ...store.files import is_shared
from ...store.identity import ensure_identity, expect_store
from ...store.private_stores import acting_for, open_to_users, separate_users
from ...store.run_folders import make_store, share_store
from . import database
from .schema import stores

log = logging.getLogger(__name__)
_insert = upsert(stores)
_PUT = _insert.on_conflict_do_update(
    index_elements=["path"], set_={"id": _insert.excluded.id, "since": _insert.excluded.since}
)


async def meant_store(engine: Engine, config: GatewayConfig, threads: StoreThreads) -> str:
    """The id of the store that is meant, expected by this process from now on.

    A store that this ledger never saw is made; one from before there were ids gets one. Empty while such a one is away.
    A store that hangs is looked at by the gateway's next life.
    """
    with engine.connect() as connection:
        known = connection.execute(select(stores.c.id).where(stores.c.path == config.store)).scalar() or ""
        is_new = database.read_meta(connection, "store") != config.store
    ident = config.store_id or known
    try:
        ident = await threads.run(partial(_settle, Path(config.store), config, ident, is_new=is_new))
    except StoreSilentError as error:
        log.warning("%s: it is taken as it was", error.message)
    else:
        with engine.begin() as connection:
            database.write_meta(connection, "store", config.store)
            if ident and ident != known:
                connection.execute(_PUT, {"path": config.store, "id": ident, "since": time.time()})
    expect_store(Path(config.store), ident)
    return ident


def _settle(store: Path, config: GatewayConfig, ident: str, *, is_new: bool) -> str:
    """Make the store what its mode says, and return its id; raises :class:`StoreError`."""
    if config.store_mode == StoreMode.OWNER:
        separate_users(store)
    if not ident:
        if is_new:
            with _rights(store):
                make_store(store)
        with _rights(store):
            ident = _adopted(store)
    if (store / "runs").is_dir():  # else it is away
        with _rights(store):
            _settle_mode(store, config)
    return ident


def _rights(store: Path) -> contextlib.AbstractContextManager[None]:
    return acting_for(store) if store.is_dir() else contextlib.nullcontext()


def _settle_mode(store: Path, config: GatewayConfig) -> None:
    """Make the store what its mode says; raises :class:`StoreError` for one that says something else."""
    if config.store_mode == StoreMode.GROUP:
        group = group_id(config.store_group)
        if group is None:
            raise StoreError(f"the store's group {config.store_group} is no group here", hint="JUPYTER_GPU_STORE_GROUP")
        share_store(store, group)
        return
    if is_shared(store / "runs"):
        hint = f"set JUPYTER_GPU_STORE_MODE=group, or take it from them: chmod -R g-rwxs {store}"
        raise StoreError(f"a group shares the store {store}, and its mode is {config.store_mode}", hint=hint)
    if config.store_mode == StoreMode.OWNER:
        open_to_users(store)


def _adopted(store: Path) -> str:
    """Id of a store from before there were ids; empty when it is away (then the gateway's next start asks again)."""
    try:
        return ensure_identity(store) if (store / "runs").is_dir() else ""
    except StoreError as error:
        log.warning("%s", error)
        return ""
