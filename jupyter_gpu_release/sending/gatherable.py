"""Whether a cell can make what ``--gather`` names: said before it is queued, not after hours of training."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from types import CodeType

from ..core.cell import CellFacts
from ..errors import OptionError


def check_gather(names: Iterable[str], facts: CellFacts, sent: Collection[str], codes: Iterable[CodeType]) -> None:
    """Raise :class:`OptionError` for a name that nothing in the cell, nor in the functions that go along, binds.

    Where that cannot be told (``exec``, ``import *``, magics) the ranks say it.
    """
    if facts.opaque or facts.binds_more:
        return
    known = facts.bound | set(sent)
    unknown = [name for name in names if name not in known]
    stored = {name for code in codes for name in _names(code)} if unknown else set()  # `global` in a function
    for name in unknown:
        if name not in stored:
            close = difflib.get_close_matches(name, sorted(known), n=1)
            mend = f"did you mean {close[0]}?" if close else "gather a name that every rank makes"
            raise OptionError(f"--gather {name}: the cell makes no such name", mend=mend)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
