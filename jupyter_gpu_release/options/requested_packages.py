"""``--pip``: packages as somebody writes them for a cell."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement

from ..errors import OptionError


def read_requests(text: str) -> list[str]:
    """Requirements with spaces between: ``einops==0.8.1 timm``.

    Raises :class:`OptionError` for anything else than names and versions; it repeats no URL, which may hold a password.
    """
    return [_read(word) for word in text.split()]


def _read(word: str) -> str:
    try:
        requirement = Requirement(word)
    except InvalidRequirement:
        requirement = None
    if requirement is None or requirement.url:
        shown = "a URL or a path" if "/" in word or "@" in word else word
        raise OptionError(
            f"--pip {shown}: not a package's name and versions",
            hint="write --pip 'einops==0.8.1 timm'; what is installed here from a URL or a folder goes along",
        )
    return str(requirement)
