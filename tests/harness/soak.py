"""Heavy suites: small in ``make test-all``, at full size in ``make soak``. Their tests are marked ``soak``."""

from __future__ import annotations

import os
from typing import Any

import pytest

AT_FULL_SIZE = os.environ.get("JUPYTER_GPU_SOAK") == "1"


def sized(small: int, full: int) -> int:
    """How many rounds, requests or bytes this session takes."""
    return full if AT_FULL_SIZE else small


def cases(name: str, first: Any, *others: Any) -> pytest.MarkDecorator:
    """Parametrize a costly test: by ``first``, and at full size by ``others`` as well."""
    return pytest.mark.parametrize(name, [first, *(others if AT_FULL_SIZE else ())])
