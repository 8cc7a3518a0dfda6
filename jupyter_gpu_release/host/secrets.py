"""Rules for what looks like a secret, by its name and its value: it is held back unless the user asks for it."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

#: whatever they hold
_CERTAIN = re.compile(
    r"(?:^|_)(?:secret|passwd|password|passphrase|pwd|credentials?|api_?(?:key|token)|access_?(?:key|token)"
    r"|(?:auth|bearer|refresh|secret|private|personal|deploy|bot|oauth|jwt|ssh|gpg|signing|encryption|license"
    r"|hf|hugging_?face|github|gh|gitlab|slack|discord|telegram|openai|anthropic|mistral|cohere|groq|replicate|wandb"
    r"|kaggle|comet|neptune|aws|azure|gcp|google|s3|stripe|npm|pypi|docker)_?(?:key|token|pat))$|^auth$",
    re.IGNORECASE,
)
#: if the value looks random: ``sort_key = "name"`` and ``pad_token = "<pad>"`` are none
_PERHAPS = re.compile(r"(?:^|_)(?:token|key|pat)$", re.IGNORECASE)
#: what services hand out begins so; such a value is a secret under any name
_ISSUED = re.compile(
    r"(?:sk-(?:[a-z]+-)*[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    r"|glpat-[\w-]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|xox[abeoprs]-[A-Za-z0-9-]{10,}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{50,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)"
    r"|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.*",
    re.DOTALL,
)
_WRAPPERS = frozenset({"SecretStr", "SecretBytes"})
_LONGEST = 10_000
#: characters of one part of a random text (parts are separated by what separates words)
_PART = 12
_BITS_PER_CHARACTER = 2.5
#: characters of its words and numbers, on average; random ones have about two
_WORD = 2.7
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|.")
_BETWEEN_WORDS = re.compile(r"[\s_\-./:<>\[\]|]+")
_HEXADECIMAL = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=.*[0-9])(?=.*[a-f])[0-9a-f]{24,}", re.IGNORECASE
)


def looks_secret(name: str, value: Any) -> bool:
    """Tell if ``value`` is text, bytes, or a wrapper made for secrets, and either ``name`` or the value says so.

    ``api_key`` and ``password`` are, whatever the text; ``primary_key`` only if it looks random; ``hf_…`` of the
    right length always. A ``sort_key`` function or a ``rng_key`` array is none; a dict only when called credentials.
    """
    if type(value).__name__ in _WRAPPERS:
        return True
    if isinstance(value, dict):
        return "credential" in name.lower() and _CERTAIN.search(name) is not None
    if not isinstance(value, (str, bytes, bytearray)) or not value or len(value) > _LONGEST:
        return False
    text = value if isinstance(value, str) else bytes(value).decode("latin-1")
    if _CERTAIN.search(name) is not None:
        return not (name.lower() == "pwd" and text.startswith("/"))  # the present working directory
    if _PERHAPS.search(name) is not None and _looks_random(text):
        return True
    return _ISSUED.fullmatch(text.strip()) is not None


def _looks_random(text: str) -> bool:
    """Tell if some part of it is no word, nor several (``customerAccountId``), nor a number."""
    return _HEXADECIMAL.fullmatch(text) is not None or any(map(_is_mixed, _BETWEEN_WORDS.split(text)))


def _is_mixed(part: str) -> bool:
    if len(part) < _PART or part.isdigit():
        return False
    counts = Counter(part).values()
    bits = -sum(count / len(part) * math.log2(count / len(part)) for count in counts)
    return len(part) / max(1, len(_WORDS.findall(part))) < _WORD and bits >= _BITS_PER_CHARACTER
