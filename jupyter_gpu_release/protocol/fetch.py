"""Questions of a running rank to its kernel or script: for names that were held back, for items of ``launch_map``.

The rank asks by an event of the kind :data:`FETCH` or :data:`NEXT`, which arrives with the output; the :class:`Answer`
or :class:`NextItem` goes through gateway and agent to the rank. The outcome of an item is an event of the kind
:data:`ITEM`.
"""

from __future__ import annotations

import msgspec

from ..units import format_bytes
from .cell import Graph
from .runs import ErrorInfo

FETCH = "fetch"
NEXT = "next-item"
ITEM = "item"
#: of a trial of a sweep: {step, value}
REPORT = "report"


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


class ItemRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Data of the event: the ``ask``-th question of a worker (from 1 on). ``begins``: the item that it begins now."""

    ask: int
    begins: int | None = None


class NextItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of the item (None: there is none left). ``error``: why there will be no answer (``ask`` is 0 then)."""

    ask: int = 0
    item: int | None = None
    error: str = ""


class ItemOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value that a call returned, inline or as a file in the run's folder, or why there is nothing."""

    item: int
    values: Graph | None = None
    error: ErrorInfo | None = None
