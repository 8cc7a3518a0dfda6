"""Names that the notebook holds back from a cell that may look any name up: fetched when the cell asks for one.

The rank asks by an event of the kind :data:`FETCH`, which reaches the waiting kernel with the output; the
:class:`Answer` goes through gateway and agent to the rank.
"""

from __future__ import annotations

import msgspec

from ..units import format_bytes
from .cell import Graph

FETCH = "fetch"


class Fetch(msgspec.Struct, frozen=True):
    """Data of the event: the ``ask``-th question of a rank (from 1 on)."""

    name: str
    ask: int
    rank: int = 0


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value that was asked for: inline, or a file in the run's folder. ``error``: why it does not come.

    ``ask`` 0: nobody answers any more. ``first``: how many objects were numbered before those of this graph.
    """

    ask: int = 0
    graph: Graph = Graph()
    first: int = 0
    error: str = ""


def not_sent(name: str, size: int, why: str = "") -> str:
    """The sentence for a name that the cell does not get."""
    reason = f" ({why})" if why else ""
    return f"`{name}` ({format_bytes(size)}) is in the notebook and was not sent{reason}: --in +{name}"
