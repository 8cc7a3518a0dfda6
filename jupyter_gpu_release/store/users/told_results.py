"""Digests of results of which a gateway has told this process: of its own runs, and of what it has loaded.

In a store that a group shares any member can write values and the manifest that speaks of them. So what lies there is
loaded by what the gateway's ledger says, or has said, of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from ...protocol.cell import Graph
from . import ownership

#: before the digest of values that came in a message: what their file will be was not known yet
_INLINE = "inline:"
#: so many a cell is told of
_NEWEST = 100
#: run → digest. Of the process, not an argument: `load` is called by users' code, which knows a run's id only
_told: dict[str, str] = {}


def note_results(run: str, graph: Graph) -> None:
    """Remember what a gateway has said of a run's results."""
    _told.pop(run, None)  # the newest last
    _told[run] = graph.digest if graph.file else _INLINE + _content_digest(graph.stream, graph.buffers)


def learn_results(told: Mapping[str, str]) -> None:
    """Take over what the process knows that has sent this one's cell."""
    _told.update(told)


def results_for_cell() -> dict[str, str]:
    """Digests of other runs' results for a cell: none where the store is one user's."""
    return dict(islice(reversed(_told.items()), _NEWEST)) if ownership.trusts_others() else {}


def file_digest(run: str, says_manifest: str) -> str:
    """The digest that the run's graph file must have; ``says_manifest`` where nothing else is known."""
    told = _told.get(run, _INLINE)
    return says_manifest if told.startswith(_INLINE) else told


def is_told(run: str) -> bool:
    """Tell if a gateway has said what this run's results are."""
    return run in _told


def is_what_was_told(run: str, stream: bytes, buffers: Sequence[Any]) -> bool:
    """Tell if these are the results of which a gateway has told (True where none has)."""
    told = _told.get(run, "")
    return not told.startswith(_INLINE) or told == _INLINE + _content_digest(stream, buffers)


def _content_digest(stream: bytes, buffers: Sequence[Any]) -> str:
    summed = hashlib.blake2b(stream, digest_size=16)
    for buffer in buffers:
        summed.update(len(buffer).to_bytes(8))
        summed.update(buffer)
    return summed.hexdigest()
