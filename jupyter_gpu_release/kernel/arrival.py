"""Binds what came back: new values, inputs that were changed in place, deleted names, modules."""

from __future__ import annotations

import types
from typing import Any

from ..storage.codec import Loaded
from .deferred import module_or_deferred

#: how many objects of the rest of the notebook are looked through for references to replaced ones
_MOST_VISITED = 20_000
_LONGEST = 10_000


class Arrival:
    """``originals``: name → object that was sent for it; ``memo``: id → (number, object) of all that was sent."""

    def __init__(
        self, namespace: dict[str, Any], loaded: Loaded, originals: dict[str, Any], memo: dict[int, tuple[int, Any]]
    ) -> None:
        self._memo = memo
        self._namespace = namespace
        self._loaded = loaded
        self._originals = originals

    def bind(self) -> None:
        """Bind everything; other names and containers that held a replaced object hold the new one."""
        loaded, namespace = self._loaded, self._namespace
        replaced = self._replaced()
        namespace.update(loaded.values)
        for name, module in loaded.modules.items():
            namespace[name] = module_or_deferred(module, namespace)
        for name in loaded.facts.get("deleted", ()):
            if namespace.get(name) is self._originals.get(name):
                namespace.pop(name, None)
        if replaced:
            _Replacement(replaced).run(namespace, set(loaded.values))

    def _replaced(self) -> dict[int, tuple[Any, Any]]:
        """id of an object that was sent and changed there → (it, what came back for it)."""
        facts, values = self._loaded.facts, self._loaded.values
        inplace = [name for name in facts.get("inplace", ()) if name in values and name in self._originals]
        replaced = {id(self._originals[name]): (self._originals[name], values[name]) for name in inplace}
        if replaced:
            numbers, things = facts.get("same", ((), ()))
            by_number = dict(self._memo.values())
            for number, thing in zip(numbers, things, strict=True):
                old = by_number.get(number)
                if type(old) is type(thing):
                    replaced.setdefault(id(old), (old, thing))
        return replaced


class _Replacement:
    """Walks the notebook's containers and plain objects and puts new objects where replaced ones were."""

    def __init__(self, replaced: dict[int, tuple[Any, Any]]) -> None:
        self._replaced = replaced
        self._seen: set[int] = {id(new) for _old, new in replaced.values()}
        self._left = _MOST_VISITED

    def run(self, namespace: dict[str, Any], arrived: set[str]) -> None:
        for name, value in list(namespace.items()):
            if name in arrived or name.startswith("__") or name in ("In", "Out", "_ih", "_oh", "_dh"):
                continue
            if id(value) in self._replaced:
                namespace[name] = self._replaced[id(value)][1]
            else:
                self._walk(value)

    def _walk(self, start: Any) -> None:
        waiting = [start]
        while waiting and self._left > 0:
            value = waiting.pop()
            if id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._left -= 1
            waiting += self._inside(value)

    def _inside(self, value: Any) -> list[Any]:
        """Replaces what ``value`` holds itself; returns what else to look through."""
        kind = type(value)
        if kind in (list, dict, tuple) and len(value) > _LONGEST:
            return []
        if kind is list:
            return self._exchange(value, enumerate(value))
        if kind is dict or kind.__name__ == "defaultdict":
            self._exchange_keys(value)
            return self._exchange(value, value.items())
        if isinstance(value, (type, types.ModuleType, types.FunctionType)):
            return []
        attributes = _attributes(value)
        if attributes is not None and not str(kind.__module__).startswith(("numpy", "pandas")):
            return self._exchange(attributes, attributes.items())
        return list(value) if kind is tuple else []

    def _exchange(self, container: Any, items: Any) -> list[Any]:
        further = []
        self._left -= len(container)
        for key, part in list(items):
            if id(part) in self._replaced:
                container[key] = self._replaced[id(part)][1]
            elif not isinstance(part, (str, bytes, int, float, bool, type(None))):
                further.append(part)
        return further

    def _exchange_keys(self, mapping: Any) -> None:
        """An optimiser's state is keyed by parameters."""
        for key in [key for key in mapping if id(key) in self._replaced]:
            mapping[self._replaced[id(key)][1]] = mapping.pop(key)


def _attributes(value: Any) -> dict[str, Any] | None:
    try:
        found = value.__dict__
    except Exception:  # noqa: BLE001 - a property or __getattr__ of the user's
        return None
    return found if type(found) is dict else None
