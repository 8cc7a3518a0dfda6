"""Opening what came out of a run: from the message, or from the run's folder on the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...client import results
from ...protocol.cell import Graph
from ...submission.request import find_store

if TYPE_CHECKING:
    from ...client.session import GatewaySession


def store_of(session: GatewaySession) -> Path:
    """The store's root as this kernel sees it; raises :class:`StoreError`."""
    target, welcome = session.target, session.welcome
    if welcome is None:
        return find_store(target.store, "", configured=target.configured)
    return find_store(target.store, welcome.store, configured=target.configured, ident=welcome.store_id)


def open_values(session: GatewaySession, run: str, graph: Graph) -> tuple[bytes, Sequence[Any]]:
    """Stream and buffers of a run's values; raises :class:`StoreError` when they are not to be had."""
    named = session.welcome.store if session.welcome else "the gateway's folder"
    return results.open_values(run, graph, lambda: store_of(session), named)
