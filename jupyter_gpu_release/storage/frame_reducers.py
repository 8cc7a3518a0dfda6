"""Columns of pandas that live in Arrow's memory. Loaded only where pandas is."""

from __future__ import annotations

import copyreg
from typing import Any


def lookup(kind: type) -> Any:
    """The reducer for an Arrow-backed column, None for pandas' own way."""
    return reduce_arrow_column if any(base.__name__ == "ArrowExtensionArray" for base in kind.__mro__) else None


def reduce_arrow_column(pickler: Any, column: Any) -> Any:
    """In one piece: as that piece's own memory. Pandas copies it first (it joins the chunks, however few they are)."""
    data = vars(column).get("_pa_array")
    if data is None or data.num_chunks != 1:
        return NotImplemented
    chunk = data.chunk(0)
    if data.nbytes * 2 < chunk.get_total_buffer_size():  # a few rows of a large one: only they shall travel
        return NotImplemented
    pickler.keep.append(chunk)
    state = {name: value for name, value in vars(column).items() if name != "_cache"} | {"_pa_array": chunk}
    return copyreg.__newobj__, (type(column),), state  # type: ignore[attr-defined]
