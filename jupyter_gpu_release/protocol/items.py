"""Items that ``launch_map`` hands out to its workers one by one, and the outcome of each.

A worker is a run like any other, with all items among its inputs. It asks for the number of its next item by an event
of the kind :data:`NEXT`; the :class:`NextItem` goes the way of the answers in :mod:`.protocol.fetch`. The outcome of an
item is an event of the kind :data:`ITEM`.
"""

from __future__ import annotations

import msgspec

from .cell import Graph
from .runs import ErrorInfo

NEXT = "next-item"
ITEM = "item"


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
    """What a call returned, inline or as a file in the run's folder, or why there is nothing."""

    item: int
    values: Graph | None = None
    error: ErrorInfo | None = None
