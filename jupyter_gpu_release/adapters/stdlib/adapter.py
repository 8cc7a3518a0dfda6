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

    def reducer_for(self, kind: type) -> Reducer | None:
        return values.reducer_for(kind)

    def reduce_array_over(self, pickler: Any, array: Any, owner: Any) -> Any:
        return buffers.reduce_array_over(pickler, array, owner)

    def can_change(self, kind: type) -> bool | None:
        return kind in iterators.KINDS or issubclass(kind, (BaseException, memoryview, weakref.finalize, CData)) or None

    def update_in_place(self, old: Any, new: Any) -> bool | None:
        updates = (iterators.update, errors.update, buffers.update, values.update_finalizer)
        return first_answer(update(old, new) for update in updates)


ADAPTER = StandardLibraryAdapter()
