"""What a dump wrote, by identity: copied out of its pickler when somebody asks, which few do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any


class WrittenObjects(Mapping[int, tuple[int, Any]]):
    """id → (number in the stream, object). It holds the objects, so no id is given away again.

    ``memo``: the pickler's (None: nothing is known). Copying it costs as much as
    pickling small values.
    """

    def __init__(self, memo: Any = None) -> None:
        self._memo = memo

    @cached_property
    def _table(self) -> dict[int, tuple[int, Any]]:
        return {} if self._memo is None else self._memo.copy()

    def __getitem__(self, ident: int) -> tuple[int, Any]:
        return self._table[ident]

    def __iter__(self) -> Iterator[int]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)
