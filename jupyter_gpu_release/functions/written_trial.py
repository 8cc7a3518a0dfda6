"""``WrittenTrial``: what the trials of a sweep run, as text: it needs neither the function nor the notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

#: stands for the parameters in the text, and on both sides of a name for the value of that one; no source has it
HOLE = "\0"


class WrittenTrial(msgspec.Struct, frozen=True):
    """A function or a cell. ``name``: of its runs, where the user gives none; ``title``: as errors speak of it."""

    name: str
    title: str
    text: str

    def statement_with(self, parameters: Mapping[str, Any]) -> str:
        """Source of one trial; its parameters are plain values."""
        text = self.text
        for name, value in parameters.items():
            text = text.replace(f"{HOLE}{name}{HOLE}", repr(value))
        return text.replace(HOLE, repr(dict(parameters)))


class Hole:
    """In the place of a value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{HOLE}{self._name}{HOLE}"
