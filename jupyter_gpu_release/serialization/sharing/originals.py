"""Objects that were sent with a graph, found again by the keys that results refer to them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .numbered_parts import PartOf, number_parts
from .references import Key, parts_of


class Originals:
    """``names``: name → object; ``by_number``: asked for number in the stream → object when that is needed.
    ``in_turn``: nothing has changed them since, so that what is inside of one is found by its place.
    """

    def __init__(
        self, names: Mapping[str, Any], by_number: Callable[[], Mapping[int, Any]], *, in_turn: bool = True
    ) -> None:
        self._names = names
        self._by_number = by_number
        #: number → object, once somebody has asked for one
        self.numbered: Mapping[int, Any] | None = None
        self._in_turn = in_turn
        self._parts: dict[str, list[Any]] = {}
        self._inside: dict[str, list[Any]] = {}

    def find(self, key: Key) -> Any:
        """The object; raises ``KeyError``."""
        if isinstance(key, int):
            if self.numbered is None:
                self.numbered = self._by_number()
            return self.numbered[key]
        if isinstance(key, str):
            return self._names[key]
        if not self._in_turn:
            raise KeyError(key)
        if isinstance(key, PartOf):
            return self._numbered(self._names[key.name], key)
        name, place = key
        if name not in self._parts:
            self._parts[name] = parts_of(self._names[name])
        parts = self._parts[name]
        if place >= len(parts):
            raise KeyError(key)
        return parts[place]

    @property
    def caches(self) -> list[list[Any]]:
        """Lists of parts, made to find them again."""
        return [*self._inside.values(), *self._parts.values()]

    def _numbered(self, value: Any, part: PartOf) -> Any:
        if part.name not in self._inside:
            self._inside[part.name] = number_parts(value)
        found = self._inside[part.name]
        if len(found) != part.total:
            raise KeyError(part)
        return found[part.number]
