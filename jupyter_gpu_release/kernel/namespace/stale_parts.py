"""Parts of large changed inputs of which nobody knows what they have become, so that the receipt can name the inputs.

Of smaller inputs the run knows it (``serialization.sharing.held_elsewhere``).
"""

from __future__ import annotations

import gc
import types
from collections.abc import Collection, Mapping
from typing import Any

from ...adapters.registry import adapters_of
from ...serialization.codec import LONGEST_COUNTED_BYTES
from ...serialization.sharing.held_elsewhere import held_elsewhere, references_of_ours
from ...submission.capture import CapturedInputs

_MOST = 200_000
#: afterwards only what is not found counts, so all has to be seen
_MOST_AFTERWARDS = 1_000_000
_NOT_WALKED = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
)


class OldParts:
    """Made before anything is bound: the parts of these inputs that something else holds, too.

    ``caches``: lists of ours that hold parts as well. It only finds words for the receipt, among objects of any kind:
    where it fails, nothing is said.
    """

    def __init__(self, prepared: CapturedInputs, changed: Collection[str], caches: Collection[list[Any]] = ()) -> None:
        self._of: dict[str, set[int]] = {}
        #: so that no other object gets an id of theirs
        self._parts: dict[int, Any] = {}
        names = [name for name in changed if name in prepared.originals]
        self._beyond = [name for name in names if _has_more_items(prepared.originals[name])]
        if len(prepared.stream) <= LONGEST_COUNTED_BYTES or not names:
            return
        try:
            self._find(prepared, names, caches)
        except Exception:  # noqa: BLE001 - see the class
            self._of = {}

    def _find(self, prepared: CapturedInputs, names: list[str], caches: Collection[list[Any]]) -> None:
        originals, memo = prepared.originals, prepared.memo
        if not memo:
            things = _inside([originals[name] for name in names])[0] | {0: []}
            memo = {ident: (ident, thing) for ident, thing in things.items()}
            del things
        memo = {**memo, **{id(cache): (-place, cache) for place, cache in enumerate(caches, 1)}}
        but = {*map(id, originals.values()), *map(id, caches)}
        found = held_elsewhere(memo, but=but, ours=references_of_ours(memo), every_kind=True)
        by_number = dict(memo.values()) if found else {}
        self._parts = {id(thing): thing for thing in map(by_number.__getitem__, found)}
        if self._parts:
            self._of = {name: _inside([originals[name]])[0].keys() & self._parts.keys() for name in names}

    def left(self, namespace: Mapping[str, Any], kept: Collection[int]) -> list[str]:
        """Names of inputs of which something still holds old parts; ``kept``: ids of what is not old any more."""
        try:
            found = [name for name, idents in self._of.items() if _is_left(name, idents - set(kept), namespace)]
            return list(dict.fromkeys([*self._beyond, *found]))
        except Exception:  # noqa: BLE001 - see the class
            return []


def _has_more_items(value: Any) -> bool:
    return any(adapter.has_more_items(value) for adapter in adapters_of(type(value)))


def _is_left(name: str, idents: set[int], namespace: Mapping[str, Any]) -> bool:
    inside, whole = _inside([namespace[name]], _MOST_AFTERWARDS) if idents and name in namespace else ({}, True)
    return whole and not idents <= inside.keys()


def _inside(values: list[Any], most: int = _MOST) -> tuple[dict[int, Any], bool]:
    """All that these values lead to, by id, up to a number; and if that is all."""
    found = {id(value): value for value in values}
    waiting = list(values)
    while waiting and len(found) < most:
        for part in gc.get_referents(waiting.pop()):
            if id(part) not in found and not issubclass(type(part), _NOT_WALKED):
                found[id(part)] = part
                waiting.append(part)
    return found, not waiting


def old_parts_left(names: Collection[str]) -> list[str]:
    """Sentences for the receipt."""
    return [f"parts of `{name}` that something else holds, too, are still the old ones there" for name in names]
