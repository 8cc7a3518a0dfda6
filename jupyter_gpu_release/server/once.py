"""What is worked out once for each new record, however many ask: answers to a front end that looks again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

K = TypeVar("K")
V = TypeVar("V")


class Once(Generic[K, V]):
    """``make(record)``, remembered for the latest record (the very object: records never change)."""

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._known: tuple[K, V] | None = None

    def of(self, record: K) -> V:
        """What was made of it, maybe just now."""
        if self._known is None or self._known[0] is not record:
            self._known = (record, self._make(record))
        return self._known[1]


def encoded(document: V) -> V:
    """Its JSON, to be put into a larger document in its place: encoding that copies it as it is."""
    return cast(V, msgspec.Raw(msgspec.json.encode(cast(Any, document))))
