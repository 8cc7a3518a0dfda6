"""A session's cluster for cells of a few lines."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def preload() -> str:
    """Torch and others would cost 5 s of CPU, and no cell here asks for them."""
    return "numpy"
