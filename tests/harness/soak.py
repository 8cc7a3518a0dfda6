"""Heavy suites: small in ``make test-all``, at full size in ``make soak``. Their tests are marked ``soak``."""

from __future__ import annotations

import os

AT_FULL_SIZE = os.environ.get("JUPYTER_GPU_SOAK") == "1"


def sized(small: int, full: int) -> int:
    """How many rounds, requests or bytes this session takes."""
    return full if AT_FULL_SIZE else small
