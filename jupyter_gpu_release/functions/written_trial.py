"""``WrittenTrial``: what the trials of a sweep run, as text, for a driver on the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

#: stands for the parameters in the text, and on both sides of a name for the value of that one; no source has it
HOLE = "\0"


class WrittenTrial(msgspec.Struct, frozen=True):
    """As :class:`.Trialled`; it needs neither the function nor the notebook."""

    name: str
    title: str
    text: str

    @property
    def written(self) -> WrittenTrial:
        """Itself."""
        return self

    def statement_with(self, parameters: Mapping[str, Any]) -> str:
        """Source of one trial."""
        text = self.text
        for name, value in parameters.items():
            text = text.replace(f"{HOLE}{name}{HOLE}", repr(value))
        return text.replace(HOLE, repr(dict(parameters)))

    def check_parameters(self, _parameters: Mapping[str, Any]) -> None:
        """Nothing: the function itself says what it does not take."""


class Hole:
    """In the place of a value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{HOLE}{self._name}{HOLE}"
