"""The store as ``jupyter gpu start`` and ``doctor`` see it: a new one is made, one that is away is not made anew."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..client.home import HomePaths
from ..errors import StoreError
from ..storage.runs import make_store, probe_store
from ..storage.store_identity import FILE, check_identity, expect_store


class _LastStart(msgspec.Struct):
    store: str = ""
    store_id: str = ""


def expect_last(home: HomePaths, folder: Path) -> None:
    """Raise :class:`StoreError` when the cluster's last start used this store, and it is not there now.

    Not there: no folder ``runs/``, or another store (or a plain folder) in its place. An empty ``store.json`` accepts
    what lies there.
    """
    try:
        last = msgspec.json.decode(home.gateway_config.read_bytes(), type=_LastStart)
    except (OSError, msgspec.MsgspecError):
        return
    if last.store != str(folder) or _is_accepted(folder):
        return
    if not (folder / "runs").is_dir():
        raise StoreError(
            f"the store {folder} is not there; the last start of this cluster had it",
            mend="is it mounted? To begin anew with an empty one: "
            f"mkdir -p -m 700 '{folder}/runs' && : > '{folder}/{FILE}'",
        )
    check_identity(folder, last.store_id)


def _is_accepted(folder: Path) -> bool:
    try:
        return (folder / "runs").is_dir() and (folder / FILE).stat().st_size == 0
    except OSError:
        return False


def begin_store(home: HomePaths, folder: Path) -> str:
    """Make the store where there was none, and try it; returns its id. Raises :class:`StoreError`."""
    expect_last(home, folder)
    ident = make_store(folder)
    expect_store(folder, ident)
    probe_store(folder)
    return ident
