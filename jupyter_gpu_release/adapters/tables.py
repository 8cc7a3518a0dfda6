"""Polars and PyArrow: tables and columns, which pickle takes along."""

from __future__ import annotations

import copyreg
from typing import Any

from .adapter import Adapter, Reducer

#: begins the text of a function that polars has pickled by itself
_FUNCTION = b"PLPYFN"


def _reduce_plan(pickler: Any, plan: Any) -> Any:
    """A query: polars writes its functions with copies of the globals that they use."""
    state = plan.__getstate__()
    if isinstance(state, bytes) and _FUNCTION in state:
        pickler.remarks.append("with copies of its functions and of the names that they use")
    return copyreg.__newobj__, (type(plan),), state  # type: ignore[attr-defined]


class TablesAdapter(Adapter):
    """Tables are values."""

    gives_values = True

    def reducer_for(self, kind: type) -> Reducer | None:
        is_plan = kind.__module__.startswith("polars.") and kind.__name__ in ("LazyFrame", "Expr")
        return _reduce_plan if is_plan else None


ADAPTER = TablesAdapter()
