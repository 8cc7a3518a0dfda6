"""A node whose store vanishes under a run, and what is told of the results meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from node_bed import Node, Run

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import RunWaits
from jupyter_gpu_release.protocol.runs import PersistWait
from jupyter_gpu_release.store.graph_file import open_graph

Until = Callable[[Callable[[], object], str], None]
#: 24 MiB: more than travels inline
LARGE = "import numpy as np\ntable = np.arange(3 << 20, dtype=np.float64)"
SMALL = "answer = 42"


def is_of(node: Node, pid: int) -> bool:
    try:
        return psutil.Process(pid).environ().get(process_control.CLUSTER_MARKER) == node.marker
    except psutil.NoSuchProcess:
        return False


def take_away(node: Node) -> Path:
    """The store vanishes, with a run's folder in it."""
    away = node.store.with_name("store-away")
    node.store.rename(away)
    return away


def begin(node: Node, source: str, until: Until, *, decoy: bool = False) -> tuple[Run, Path]:
    """A run whose store vanishes while its cell runs; returns once it has been released.

    ``decoy``: below its mount point somebody once made the folder of the runs.
    """
    go = node.store.parent / "go"
    wait = f"\nimport os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.005)"
    run = node.start(source + wait, workdir=str(node.store.parent))
    run.wait_for(lambda run: run.phase("running"))
    away = take_away(node)
    if decoy:
        (node.store / "runs").mkdir(parents=True)
    go.touch()
    run.wait_for(lambda run: run.phase("released"))
    return run, away


def waits_of(run: Run) -> list[PersistWait]:
    return [message.waits_for for message in run.messages if isinstance(message, RunWaits)]


def failures_of(run: Run) -> list[PersistWait]:
    return [wait for wait in waits_of(run) if wait.reason]


def persister_of(node: Node, until: Until) -> int:
    """The process that keeps the results, once it has given itself its name."""
    until(lambda: any(is_of(node, pid) for pid in process_control.persisters()), "the persister")
    (pid,) = [pid for pid in process_control.persisters() if is_of(node, pid)]
    return pid


def _table(node: Node, run: str, values: Graph) -> Any:
    graph = open_graph(node.store / "runs" / run / "values.graph", values.digest, verify=True)
    return np.frombuffer(max(graph.buffers, key=len), dtype=np.float64)


def assert_whole(node: Node, run: str, values: Graph | None) -> None:
    assert values is not None
    assert (_table(node, run, values) == np.arange(3 << 20)).all()
