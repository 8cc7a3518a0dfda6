"""The store as ``jupyter gpu start`` and ``doctor`` see it: a new one is made, one that is away is not made anew."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..client.home import HomePaths
from ..errors import StoreError
from ..storage.runs import make_store, probe_store


class _LastStart(msgspec.Struct):
    store: str = ""


def is_away(home: HomePaths, folder: Path) -> bool:
    """Whether the cluster's last start used this store, and it is not there now."""
    try:
        last = msgspec.json.decode(home.gateway_config.read_bytes(), type=_LastStart)
    except (OSError, msgspec.MsgspecError):
        return False
    return last.store == str(folder) and not (folder / "runs").is_dir()


def away(folder: Path) -> StoreError:
    """What to say of it."""
    return StoreError(
        f"the store {folder} is not there; the last start of this cluster had it",
        mend=f"is it mounted? To begin anew with an empty one: mkdir -p -m 700 '{folder}/runs'",
    )


def begin_store(home: HomePaths, folder: Path) -> None:
    """Make the store where there was none, and try it; raises :class:`StoreError`."""
    if is_away(home, folder):
        raise away(folder)
    make_store(folder)
    probe_store(folder)
