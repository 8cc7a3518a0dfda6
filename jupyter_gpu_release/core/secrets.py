"""Names that look like secrets are held back unless the user asks for them."""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(
    r"(?:^|_)(?:token|api_?key|access_?key|secret|passwd|password|passphrase|pwd|credentials?)$|_(?:key|pat)$|^auth$",
    re.IGNORECASE,
)
_WRAPPERS = frozenset({"SecretStr", "SecretBytes"})


def looks_secret(name: str, value: Any) -> bool:
    """Whether ``name`` is called like a secret and ``value`` is text, bytes, or a wrapper made for secrets.

    A ``sort_key`` function or a ``rng_key`` array is none; a dict is one only when it is called credentials.
    """
    if _NAME.search(name) is None:
        return False
    if isinstance(value, dict):
        return "credential" in name.lower()
    return isinstance(value, (str, bytes, bytearray)) or type(value).__name__ in _WRAPPERS
