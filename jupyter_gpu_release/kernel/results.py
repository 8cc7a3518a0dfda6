"""Opening what came out of a run: from the message, or from the run's folder on the store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.messages import Graph
from ..errors import StoreError
from .submission import find_store

if TYPE_CHECKING:
    from ..client.session import GatewaySession


def store_of(session: GatewaySession) -> Path:
    """The store's root as this kernel sees it; raises :class:`StoreError`."""
    target, welcome = session.target, session.welcome
    return find_store(target.store, welcome.store if welcome else "", configured=target.configured)


def open_values(session: GatewaySession, run: str, graph: Graph) -> tuple[bytes, Sequence[Any]]:
    """Stream and buffers of a run's values; raises :class:`StoreError` when they are not to be had."""
    if not graph.file:
        return graph.stream, graph.buffers
    from ..storage.graph_file import open_graph
    from ..storage.layout import RunPaths

    if Path(graph.file).name != graph.file:
        raise StoreError(f"{graph.file!r} is no file name of a run folder")
    store = store_of(session)
    folder = RunPaths.of(store, run).folder
    if not os.path.isdir(folder):
        named = session.welcome.store if session.welcome else "the gateway's folder"
        raise StoreError(
            f"there is no folder of run {run} in the store {store}",
            mend=f"name in JUPYTER_GPU_STORE where this kernel sees {named}, the store of the cluster",
        )
    opened = open_graph(folder / graph.file, graph.digest)
    return opened.stream, opened.buffers
