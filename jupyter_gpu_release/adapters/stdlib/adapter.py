"""The adapter of Python itself."""

from __future__ import annotations

import copyreg
import weakref
from collections.abc import Iterable
from typing import Any

from ..adapter import Adapter, Reducer
from ..memory import CData
from ..registry import first_answer
from . import buffers, errors, iterators, log_settings, settings, sqlite, values


class StandardLibraryAdapter(Adapter):
    """Asked last, for every class."""

    name = "python"
    carried_calls = settings.CALLS
    settings = settings.ALL

    def registration_of(self, cls: type) -> Any:
        return copyreg.dispatch_table.get(cls)

    def register_class(self, cls: type, registration: Any) -> None:
        copyreg.dispatch_table.setdefault(cls, registration)

    def extended_classes(self) -> Iterable[type]:
        return [sqlite.ToldSqlite, log_settings.ToldLogging]

    def extensions(self) -> Iterable[tuple[type, str, Any]]:
        return [*sqlite.told(), *log_settings.told()]

    def what_stays(self) -> Iterable[str]:
        return log_settings.what_stays()

    def reducer_for(self, kind: type) -> Reducer | None:
        return values.reducer_for(kind)

    def reduce_array_over(self, pickler: Any, array: Any, owner: Any) -> Any:
        return buffers.reduce_array_over(pickler, array, owner)

    def can_change(self, kind: type) -> bool | None:
        changing = (BaseException, memoryview, weakref.finalize, CData, *values.FILES_IN_MEMORY)
        return kind in iterators.KINDS or issubclass(kind, changing) or None

    def update_in_place(self, old: Any, new: Any) -> bool | None:
        updates = (
            iterators.update,
            errors.update,
            buffers.update,
            values.update_finalizer,
            values.update_weakref,
            values.update_weak_container,
            values.update_file_in_memory,
        )
        return first_answer(update(old, new) for update in updates)

    def is_opaque(self, kind: type) -> bool:
        return kind in values.WEAK_CONTAINERS

    def items_of(self, thing: Any) -> Any:
        return values.weak_items(thing) if type(thing) in values.WEAK_CONTAINERS else None

    def set_items(self, thing: Any, items: dict[int, Any]) -> None:
        if type(thing) in values.WEAK_CONTAINERS:
            values.set_weak_items(thing, items)


ADAPTER = StandardLibraryAdapter()
