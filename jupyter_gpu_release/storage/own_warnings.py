"""Writing and reading a graph shows no warnings: the user's cell did not ask for what happens there."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: told by its identity from an equal one of somebody else's
_IGNORE: Any = ("ignore", None, Warning, None, 0)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Filters that modules set while they are imported stay; what Python has shown once stays known as shown.

    (``catch_warnings`` would take the filters back, and have every warning of the notebook shown again.)
    """
    warnings.filters.insert(0, _IGNORE)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        place = next((place for place, each in enumerate(warnings.filters) if each is _IGNORE), None)
        if place is not None:
            del warnings.filters[place]  # type: ignore[attr-defined]
