"""Names of contents: blake3-256, in hexadecimal."""

from __future__ import annotations

import os
import re
from typing import Any

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_THREADS = 4


def digest_of(data: Any) -> str:
    """The digest of a contiguous buffer, by several threads.

    The number is given each time, never ``AUTO``: that pool of threads would not be there after a fork.
    """
    return str(new_hasher().update(data).hexdigest())


def new_hasher() -> Any:
    """The hasher of :func:`digest_of`, for contents that come piece by piece (``update``, ``hexdigest``)."""
    from blake3 import blake3

    return blake3(max_threads=max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)))))


def is_digest(text: str) -> bool:
    """Tell if ``text`` has the form of a digest (so that it is safe as a file name)."""
    return _DIGEST.fullmatch(text) is not None
