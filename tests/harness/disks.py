"""Small filesystems of a test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[Path]:
    """A filesystem of this size (``4m``) at ``folder``; skips the test where it cannot be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    try:
        yield folder
    finally:  # a test may have unmounted it
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
