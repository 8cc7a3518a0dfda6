"""Large libraries that a light environment lacks (``make test-python``): what needs one is skipped there.

In CI's whole environment a skip fails (``skips.py``). ``from optional_libraries import torch`` gives the library, or a
stand-in that skips the test that touches it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from typing import Any

import pytest

#: set by ``make test-python``
LIGHT = "JUPYTER_GPU_TEST_LIGHT"
LARGE = (
    "torch",
    "jax",
    "keras",
    "lightning",
    "accelerate",
    "transformers",
    "xgboost",
    "lightgbm",
    "polars",
    "pydantic",
    "statsmodels",
    "networkx",
    "sympy",
    "mpmath",
    "pyarrow",
    "mcp",
)
_MISSING = [name for name in LARGE if importlib.util.find_spec(name) is None]
_IMPORT = re.compile(rf"\b(?:import|from)\b[^\n;]*\b({'|'.join(_MISSING)})\b")


class _Missing:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks at whatever a module has
            raise AttributeError(name)
        pytest.skip(f"could not import {self._name!r}", allow_module_level=True)


def __getattr__(name: str) -> Any:
    if name not in LARGE:
        raise AttributeError(name)
    return _Missing(name) if name in _MISSING else importlib.import_module(name)


def is_light() -> bool:
    """Tell if the environment is one that may lack them."""
    return os.environ.get(LIGHT) == "1"


def skip_without(source: str) -> None:
    """Skip the test whose cell imports one that is not installed."""
    if _MISSING and (found := _IMPORT.search(source)):
        pytest.skip(f"could not import {found[1]!r}")
