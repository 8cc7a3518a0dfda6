"""Values of runs: opened from the message or the store, and those that could not be read to their end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...client import results
from ...protocol.cell import Graph
from ...protocol.states import is_run_id
from ...serialization.sharing.array_memory import layout_of
from ...store.ownership import trust
from ...submission.request import find_store

if TYPE_CHECKING:
    from ...client.session import GatewaySession

_MOST_NAMED = 12


def store_of(session: GatewaySession) -> Path:
    """The store's root as this kernel sees it; raises :class:`StoreError`."""
    return find_store(session.target.store, session.welcome, configured=session.target.configured)


def open_values(session: GatewaySession, run: str, graph: Graph) -> tuple[bytes, Sequence[Any]]:
    """Stream and buffers of a run's values; raises :class:`StoreError` when they are not to be had."""
    welcome = session.welcome
    named = welcome.store if welcome else "the gateway's folder"
    if welcome is not None:
        trust(welcome.service_uid)
    return results.open_values(run, graph, lambda: store_of(session), named)


class UnreadableValues:
    """Names that hold zeros in place of what could not be read: said before each cell, until they are bound anew.

    The StoreError of the first reading cell is easily missed (a `try`, a cell of long ago), and the zeros look like
    numbers. Listens to the cells of ``shell``. ``run_of``: the run that made what a name holds (empty: none is known).
    """

    def __init__(self, shell: Any, run_of: Callable[[str, Any], str]) -> None:
        self._shell = shell
        self._run_of = run_of
        shell.events.register("pre_run_cell", self._remind)

    def end(self) -> None:
        """Say nothing any more."""
        self._shell.events.unregister("pre_run_cell", self._remind)

    def _remind(self, _info: object = None) -> None:
        graph_map = sys.modules.get("jupyter_gpu_release.store.mapped.mapping")  # else nothing was ever mapped
        torn = graph_map.torn_maps() if graph_map is not None else []
        lost = self._lost_names(torn) if torn else []
        if lost:
            sys.stderr.write(_words(lost, torn))

    def _lost_names(self, torn: list[Any]) -> list[str]:
        runs = {mapping.used_by.parent.name for mapping in torn}
        names: Mapping[str, Any] = dict(self._shell.user_ns)
        return [name for name, value in names.items() if name[:1] != "_" and self._is_lost(name, value, torn, runs)]

    def _is_lost(self, name: str, value: Any, torn: list[Any], runs: set[str]) -> bool:
        address = _address_of(value)
        if address is not None:
            return any(mapping.holds(address, 1) for mapping in torn)
        return self._run_of(name, value) in runs  # a model, a frame: some of it may be


def _address_of(value: Any) -> int | None:
    """Address of an array's or tensor's memory; None for anything else."""
    layout = layout_of(value)
    return None if layout is None else layout.address


def _words(names: list[str], torn: list[Any]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    run = torn[0].used_by.parent.name
    again = f"`%gpu_attach {run}` when the filesystem is back, or " if is_run_id(run) else ""
    return (
        f"StoreError: {shown}{more} may hold zeros: {torn[0].path} could not be read to its end.\n"
        f"  → do not use them: {again}run the cell that made them again, or `del` them (said until then)\n"
    )
