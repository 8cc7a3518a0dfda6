"""A node on which cells run as their owners, and two of these. Needs root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from node_bed import Node, Run
from unix_users import ANN, BOB, TEAM

from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.config import UnixUser
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.graph_file import read_graph
from jupyter_gpu_release.store.private_stores import acting_for, make_own_folder, open_to_users
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store
from jupyter_gpu_release.unpickling import Trust

Limits = dict[str, tuple[int, int]]
ACCOUNTS = {
    ANN: UnixUser("ann", ANN, ANN, [ANN, TEAM], "/", "/bin/bash"),
    BOB: UnixUser("bob", BOB, BOB, [BOB], "/nonexistent", ""),
}


class OwnersNode:
    """A node on which cells run as their owners."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        root = folder / "store"
        self.node = Node(root, ["numpy"], as_owners=True, **settings)
        open_to_users(root)
        self.stores = {uid: make_own_folder(root, uid, uid) for uid in ACCOUNTS}
        for store in self.stores.values():
            with acting_for(store):
                make_store(store, self.node.config.store_id)

    def start(self, uid: int, source: str, limits: Limits | None = None, **options: Any) -> Run:
        run, store = new_run_id(), self.stores[uid]
        workdir = str(options.pop("at", store / "runs" / run))
        with acting_for(store):
            create_run_folder(store, run)
        self.node.store = store
        try:
            return self.node.start(
                source,
                run=run,
                workdir=workdir,
                as_owner=True,
                made=True,
                owner=msgspec.structs.replace(ACCOUNTS[uid], limits=limits or {}),
                **options,
            )
        finally:
            self.node.store = store.parent.parent

    def run(self, uid: int, source: str, limits: Limits | None = None, **options: Any) -> Run:
        run = self.start(uid, source, limits, **options)
        run.wait()
        return run


def values_of(run: Run) -> dict[str, Any]:
    """Names that a run left."""
    assert run.outcome.status == "ok", (run.outcome, run.text("stderr"))
    graph = run.outcome.values
    assert graph is not None
    stream, buffers = read_graph(Graph(graph.stream, graph.buffers), Path(run.order.folder))
    return codec.load(stream, buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN).values
