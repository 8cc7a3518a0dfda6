"""The store that the gateway means by its path: kept in the ledger, so that another one in its place is noticed."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...errors import StoreError
from ...protocol.config import GatewayConfig
from ...store.identity import ensure_identity, expect_store
from ...store.run_folders import make_store
from . import database
from .schema import stores

log = logging.getLogger(__name__)
_insert = upsert(stores)
_PUT = _insert.on_conflict_do_update(
    index_elements=["path"], set_={"id": _insert.excluded.id, "since": _insert.excluded.since}
)


def meant_store(connection: Connection, config: GatewayConfig) -> str:
    """The id of the store that is meant, expected by this process from now on.

    A store that this ledger never saw is made; one from before there were ids gets one. Empty while such a one is away.
    """
    store, known = (
        Path(config.store),
        connection.execute(select(stores.c.id).where(stores.c.path == config.store)).scalar(),
    )
    ident = config.store_id or known or ""
    if not ident:
        if database.read_meta(connection, "store") != config.store:
            make_store(store)
        ident = _adopted(store)
    database.write_meta(connection, "store", config.store)
    if ident and ident != known:
        connection.execute(_PUT, {"path": config.store, "id": ident, "since": time.time()})
    expect_store(store, ident)
    return ident


def _adopted(store: Path) -> str:
    """Id of a store from before there were ids; empty when it is away (then the gateway's next start asks again)."""
    try:
        return ensure_identity(store) if (store / "runs").is_dir() else ""
    except StoreError as error:
        log.warning("%s", error)
        return ""
