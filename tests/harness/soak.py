"""Heavy suites: small in ``make test-all``, at full size in ``make soak``. Their tests are marked ``soak``; what is
marked ``soak(only=True)`` runs at full size alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

AT_FULL_SIZE = os.environ.get("JUPYTER_GPU_SOAK") == "1"


def sized(small: int, full: int) -> int:
    """How many rounds, requests or bytes this session takes."""
    return full if AT_FULL_SIZE else small


ONLY_IN_SOAK = pytest.mark.soak(only=True)


def cases(of_all: Sequence[Any], of_soak: Sequence[Any]) -> list[Any]:
    """Values of a parameter: those of ``make test-all``, and further ones at full size."""
    return [*of_all, *(pytest.param(value, marks=ONLY_IN_SOAK) for value in of_soak)]


def thorough(*values: Any) -> list[Any]:
    """Further values of a parameter, for ``make test-all``."""
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]


class SoakOnly:
    """A plugin that leaves out what only the soak runs."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """At full size all stay."""
        left = [] if AT_FULL_SIZE else [item for item in items if any(map(_is_only, item.iter_markers("soak")))]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item not in left]


def _is_only(mark: pytest.Mark) -> bool:
    return bool(mark.kwargs.get("only"))
