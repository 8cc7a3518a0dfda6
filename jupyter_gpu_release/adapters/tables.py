"""Polars and PyArrow: tables and columns, which pickle takes along."""

from __future__ import annotations

import copyreg
import json
import sys
from collections.abc import Collection
from typing import Any

from .adapter import Adapter, LibrarySettings, Reducer, Values

#: begins the text of a function that polars has pickled by itself
_FUNCTION = b"PLPYFN"


def _reduce_plan(pickler: Any, plan: Any) -> Any:
    """A query: polars writes its functions with copies of the globals that they use."""
    state = plan.__getstate__()
    if isinstance(state, bytes) and _FUNCTION in state:
        pickler.remarks.append("with copies of its functions and of the names that they use")
    return copyreg.__newobj__, (type(plan),), state  # type: ignore[attr-defined]


def _config(polars: Any) -> Values:
    """Settings of ``pl.Config``, partly in environment variables that polars has read before."""
    found: Values = polars.Config.state()
    return found


def _usual_config(polars: Any) -> Values:
    return {name: _DIRECT.get(name) for name in _config(polars)}


def _set_config(polars: Any, name: str, value: Any) -> None:
    """``load`` has polars read its environment variables again."""
    polars.Config.load(json.dumps({"direct" if name in _DIRECT else "environment": {name: value}}))


#: settings that are no environment variables, as they usually are
_DIRECT = {
    "set_fmt_float": "mixed",
    "set_float_precision": None,
    "set_thousands_separator": "",
    "set_decimal_separator": ".",
    "set_trim_decimal_zeros": False,
}


class TablesAdapter(Adapter):
    """Tables are values."""

    gives_values = True
    settings = (LibrarySettings("polars", _config, _usual_config, _set_config, that_count=False),)

    @property
    def carried_calls(self) -> Collection[str]:  # type: ignore[override] # known once polars is loaded
        config = getattr(sys.modules.get("polars"), "Config", None)
        return ["Config", *(f"Config.{name}" for name in vars(config or object) if name.startswith("set_"))]

    def reducer_for(self, kind: type) -> Reducer | None:
        is_plan = kind.__module__.startswith("polars.") and kind.__name__ in ("LazyFrame", "Expr")
        return _reduce_plan if is_plan else None


ADAPTER = TablesAdapter()
