"""The memory that arrays and views look at."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from ...adapters.memory import Layout, NotThereError, Place, looked_at
from ...adapters.registry import adapter_of, adapters_of, first_answer

__all__ = [
    "KnownMemory",
    "Layout",
    "NotThereError",
    "Place",
    "in_writing_order",
    "layout_of",
    "looks_at_memory",
    "place_in",
]


def memory_of(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Key of replaced memory → the new memory."""
    found: dict[Any, Any] = {}
    for old, new in pairs:
        for adapter in adapters_of(type(old)) if type(new) is type(old) else ():
            found |= adapter.replaced_memory(old, new)
    return found


def copy_into_view(old: Any, new: Any) -> bool:
    """Tell if ``old`` is a view whose memory was not sent, and got the values of ``new``: the memory sees them, too."""
    return type(new) is type(old) and any(adapter.fill_view(old, new) for adapter in adapters_of(type(old)))


class KnownMemory:
    """Memory of arrays and tensors: (key, object) of each."""

    def __init__(self, objects: Iterable[tuple[Any, Any]]) -> None:
        self._objects: Iterable[tuple[Any, Any]] | None = objects
        #: by device, in order: first bytes, and (behind the last, key, layout); none lies within another
        self._spans: dict[str, tuple[list[int], list[tuple[int, Any, Layout]]]] = {}

    def place_of(self, view: Any) -> Place | None:
        """The place that ``view`` looks at; None: it looks at no memory that is known."""
        if self._objects is not None:
            self._take(self._objects)
            self._objects = None
        layout = layout_of(view)
        starts, spans = self._spans.get(layout.device if layout is not None else "", ((), ()))
        if layout is None or not starts or 0 in layout.shape:
            return None
        low, high = layout.extent
        at = bisect.bisect_right(starts, low) - 1
        if at < 0 or high > spans[at][0]:
            return None
        _, key, base = spans[at]
        kind, flag = first_answer(adapter.kind_of_view(view) for adapter in adapters_of(type(view))) or (None, False)
        return Place(key, base, layout.address - base.address, layout.shape, layout.strides, view.dtype, kind, flag)

    def _take(self, objects: Iterable[tuple[Any, Any]]) -> None:
        found: dict[str, list[tuple[int, int, Any, Layout]]] = {}
        for key, thing in objects:
            layout = layout_of(thing)
            if layout is not None and layout.is_dense:
                low, high = layout.extent
                found.setdefault(layout.device, []).append((low, -high, key, layout))
        for device, each in found.items():
            each.sort(key=lambda span: span[:2])
            reach = [0, *itertools.accumulate((-high for _, high, *_ in each), max)]
            widest = [span for span, before in zip(each, reach, strict=False) if -span[1] > before]
            self._spans[device] = [low for low, *_ in widest], [(-high, key, layout) for _, high, key, layout in widest]


def layout_of(thing: Any) -> Layout | None:
    """The layout of an array (without objects in it) or of a strided tensor; None for anything else."""
    return first_answer(adapter.layout_of(thing) for adapter in adapters_of(type(thing)))


def looks_at_memory(thing: Any) -> bool:
    """Tell if an object shows memory that another one may own: an array, a tensor, a view of a buffer."""
    return looked_at(thing) is not None or layout_of(thing) is not None


def place_in(live: Any, place: Place) -> Any:
    """The view at this place of the notebook's object; raises :class:`NotThereError`."""
    now = layout_of(live)
    if now is None:
        raise NotThereError
    offset, strides = place.within(now)
    makers = (adapter_of("numpy"),) if place.kind is None else adapters_of(place.kind)
    try:
        view = first_answer(each.view_at(live, place, now.address + offset, strides) for each in makers if each)
    except (ValueError, TypeError, RuntimeError) as error:
        raise NotThereError from error
    if view is None:
        raise NotThereError
    return view


def in_writing_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sort values: what a view looks at is written before the view, so that it is not copied."""
    return dict(sorted(values.items(), key=lambda item: _rank(item[1])))


def _rank(value: Any) -> int:
    """Arrays before all that may look at their memory; parts of a larger memory last."""
    rank = first_answer(adapter.writing_rank(value) for adapter in adapters_of(type(value)))
    return 1 if rank is None else rank
