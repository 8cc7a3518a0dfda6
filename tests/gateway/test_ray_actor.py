"""Modules loaded to create a gateway, and in it: both are on the way of a machine's first cell."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("jupyter_gpu_release.gateway.deploy", {"sqlalchemy", "uvicorn", "jupyter_gpu_release.gateway.actor"}),
        ("jupyter_gpu_release.gateway.actor", {"httpx"}),
    ],
)
def test_what_is_not_needed_yet_is_not_loaded(module: str, left_out: set[str]) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert module in loaded.stdout.split()
    assert not left_out & set(loaded.stdout.split())
