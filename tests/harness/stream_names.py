"""Names of our modules in written streams."""

from __future__ import annotations

import re

#: what users import themselves, and the names that are made for streams
_STABLE = frozenset({"jupyter_gpu_release.errors", "jupyter_gpu_release.streams"})
#: as SHORT_BINUNICODE, or behind GLOBAL
_MODULE = re.compile(rb"(?:\x8c.|c)(jupyter_gpu_release\.[\w.]+)", re.DOTALL)


def paths_of_ours(stream: bytes) -> set[str]:
    """Dotted paths in a stream that a move of our code would break."""
    return {found.decode() for found in _MODULE.findall(stream)} - _STABLE
