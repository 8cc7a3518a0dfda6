"""What nodes and gateway say of cells, said of a launched function: they know only runs."""

from __future__ import annotations

import msgspec

from ..core.messages import RunView

_WORDS = (
    ("; the cell's names are gone", ""),
    ("; its names are gone", ""),
    ("; it left no names", ""),
    ("before its first statement", "before it began"),
    ("run the cell again", "launch it again"),
    ("the cell", "the function"),
)


def of_function(text: str) -> str:
    """One of our own sentences."""
    for of_cell, words in _WORDS:
        text = text.replace(of_cell, words)
    return text


def said_of_function(view: RunView) -> RunView:
    """The view with our own sentences so changed; what the function raised stays as it is."""
    outcome = view.outcome
    if outcome is not None and outcome.error is not None and not outcome.error.code:
        return view
    if outcome is not None and (error := outcome.error) is not None:
        error = msgspec.structs.replace(error, evalue=of_function(error.evalue), mend=of_function(error.mend))
        outcome = msgspec.structs.replace(outcome, error=error)
    return msgspec.structs.replace(view, reason=of_function(view.reason), outcome=outcome)
