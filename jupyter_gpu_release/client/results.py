"""Results of a run, read from where they lie: inside its outcome, or in its folder on the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import streams
from ..errors import StoreError
from ..protocol.cell import Graph
from ..protocol.runs import RunView, ValueInfo
from ..protocol.states import RunState
from ..store import ownership
from ..units import format_bytes


@streams.named
class Results(Mapping[str, Any]):
    """The results of a run, by name; large arrays are mapped from their files, not read.

    Attributes
    ----------
    run : str
        The run's id.
    state : str
        ``succeeded``, or how else it ended (then these are the names that were salvaged).
    notes : list of str
        What could not be rebuilt here, and why.
    lacking : list of str
        Names that the code of what came reads, and that are not defined here.
    """

    def __init__(
        self,
        run: str,
        state: str,
        values: Mapping[str, Any],
        facts: Sequence[ValueInfo] = (),
        notes: Sequence[str] = (),
        lacking: Sequence[str] = (),
    ) -> None:
        self.run = run
        self.state = state
        self.notes = list(notes)
        self.lacking = list(lacking)
        self._values = dict(values)
        self._types = {info.name: (info.type, info.bytes) for info in facts}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"run {self.run} made no `{name}`; it made {', '.join(self._values) or 'nothing'}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<results of run {self.run} ({self.state}): {', '.join(map(self._described, self)) or 'none'}>"

    def _described(self, name: str) -> str:
        kind, size = self._types.get(name, ("", 0))
        return f"{name} ({kind}, {format_bytes(size)})" if kind else name


def open_values(run: str, graph: Graph, find_store: Callable[[], Path], named: str) -> tuple[bytes, Sequence[Any]]:
    """Stream and buffers of a run's values, as a gateway speaks of them; buffers of a file are mapped, not read.

    ``find_store`` is asked when there is a file; ``named``: what the gateway calls the store.

    Raises :class:`StoreError` when the folder is gone or cannot be seen, or the file is not what its digest says.
    """
    ownership.note_results(run, graph)
    if not graph.file:
        return graph.stream, [bytearray(buffer) for buffer in graph.buffers]
    return open_stored(run, graph, find_store(), named)


def open_stored(run: str, graph: Graph, store: Path, named: str) -> tuple[bytes, Sequence[Any]]:
    """Like :func:`open_values`, of a file, whoever has told of it."""
    from ..store.graph_file import read_graph
    from ..store.layout import RunPaths
    from ..store.run_folders import require_store

    folder = RunPaths.of(store, run).folder
    if folder.is_symlink():
        raise StoreError(f"{folder} is a symbolic link, which no run's folder is: not loaded", hint="remove the link")
    if not os.path.isdir(folder):
        if str(store) == named:
            require_store(store)  # not mounted here: no cell that is run again would mend that
        elsewhere = f"name in JUPYTER_GPU_STORE where this kernel sees {named}, the store of the cluster"
        hint = elsewhere if str(store) != named else "was it removed there? Run the cell again"
        raise StoreError(f"there is no folder of run {run} in the store {store}", hint=hint)
    return read_graph(graph, folder)


def is_usable(view: RunView) -> bool:
    """Tell if the lease is gone and what came back can be used: it is inline or durable (or nothing came)."""
    if RunState.of(view.state).is_terminal:
        return True
    if view.gone_at is None or view.outcome is None:
        return False
    values = view.outcome.values
    return values is None or not values.file


def say_lacking(run: str, names: Sequence[str], *, in_run: bool = False) -> str:
    """Say that the code of what a run made will not find these names here."""
    hint = f"--in +{names[0]} sends one along" if in_run else "run the cells of its notebook that define them"
    return f"code from run {run} reads names that are not defined here: {', '.join(f'`{n}`' for n in names)} ({hint})"
