"""Parts of large changed inputs of which nobody knows what they have become, so that the receipt can name the inputs.

Of smaller inputs the run knows it (``serialization.sharing.held_elsewhere``).
"""

from __future__ import annotations

import gc
import types
from collections.abc import Collection, Mapping
from typing import Any

from ...serialization.codec import LONGEST_COUNTED_BYTES
from ...serialization.sharing.held_elsewhere import held_elsewhere, references_of_ours
from ...submission.capture import CapturedInputs

_MOST = 200_000
#: of a graph of fewer objects the run tells all apart but lists and dicts that hold other things than plain values
_MOST_NUMBERED = 20_000
_NOT_WALKED = (
    str, bytes, int, float, complex, type(None), type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType,
    types.CodeType, types.FrameType,
)  # fmt: skip


class OldParts:
    """Made before anything is bound: the parts of these inputs that something else holds, too."""

    def __init__(self, prepared: CapturedInputs, changed: Collection[str]) -> None:
        originals = prepared.originals
        self._names = [name for name in changed if name in originals]
        self._parts: dict[int, Any] = {}
        if len(prepared.stream) <= LONGEST_COUNTED_BYTES or not self._names:
            return
        tops = {id(value) for value in originals.values()}
        memo = prepared.memo
        every_kind = not 0 < len(memo) <= _MOST_NUMBERED
        if not memo:
            things = _inside([originals[name] for name in self._names]) | {0: []}
            memo = {ident: (ident, thing) for ident, thing in things.items()}
            del things
        found = held_elsewhere(memo, but=tops, ours=references_of_ours(memo), every_kind=every_kind)
        by_number = dict(memo.values()) if found else {}
        self._parts = {id(thing): thing for thing in map(by_number.__getitem__, found)}
        if self._parts:
            inside = {name: _inside([originals[name]]).keys() for name in self._names}
            self._of = {name: idents & self._parts.keys() for name, idents in inside.items()}

    def left(self, namespace: Mapping[str, Any], kept: Collection[int]) -> list[str]:
        """Names of inputs of which something still holds old parts; ``kept``: ids of what is not old any more."""
        if not self._parts:
            return []
        return [
            name
            for name, idents in self._of.items()
            if idents - set(kept) - (_inside([namespace[name]]).keys() if name in namespace else set())
        ]


def _inside(values: list[Any]) -> dict[int, Any]:
    """All that these values lead to, by id, up to a number."""
    found = {id(value): value for value in values}
    waiting = list(values)
    while waiting and len(found) < _MOST:
        for part in gc.get_referents(waiting.pop()):
            if id(part) not in found and not issubclass(type(part), _NOT_WALKED):
                found[id(part)] = part
                waiting.append(part)
    return found


def old_parts_left(names: Collection[str]) -> list[str]:
    """Sentences for the receipt."""
    return [f"parts of `{name}` that something else holds, too, are still the old ones there" for name in names]
