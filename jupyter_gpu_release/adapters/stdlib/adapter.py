"""The adapter of Python itself."""

from __future__ import annotations

from ..adapter import Adapter, Reducer
from . import settings, values


class StandardLibraryAdapter(Adapter):
    """Asked last, for every class."""

    settings = settings.ALL

    def reducer_for(self, kind: type) -> Reducer | None:
        return values.reducer_for(kind)


ADAPTER = StandardLibraryAdapter()
