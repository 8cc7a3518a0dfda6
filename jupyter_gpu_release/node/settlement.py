"""How the wait for a run's results ends, and what is spilled when memory runs short. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ..core.messages import ErrorInfo, Graph, Outcome
from ..core.resources import format_bytes
from ..errors import RunCancelledError, RunLostError
from ..storage.layout import VALUES_FILE

_MOST_NAMED = 8


@dataclass(frozen=True)
class Settlement:
    """``durable`` (with the file's digest), ``lost`` or ``given up`` (with the reason)."""

    state: str
    digest: str = ""
    reason: str = ""


def settled_outcome(run: str, outcome: Outcome, settlement: Settlement) -> Outcome:
    """The run's outcome once its results are durable, lost or given up."""
    values = outcome.values
    if settlement.state == "durable":
        if values is not None:
            file = VALUES_FILE if values.file else ""
            values = Graph(values.stream, values.buffers, file=file, digest=settlement.digest)
        return msgspec.structs.replace(outcome, values=values)
    text = f"results of run {run} ({what(outcome)}) are {settlement.state}: {settlement.reason}"
    if values is not None and values.file:
        values = None
    outcome = msgspec.structs.replace(outcome, values=values, results=outcome.results if values is not None else [])
    if outcome.error is not None:
        return msgspec.structs.replace(outcome, notes=[*outcome.notes, text])
    if settlement.state == "lost":
        error = ErrorInfo(RunLostError.__name__, text, code=RunLostError.code, mend="run the cell again")
        return msgspec.structs.replace(outcome, status="lost", error=error)
    error = ErrorInfo(RunCancelledError.__name__, text, code=RunCancelledError.code)
    return msgspec.structs.replace(outcome, status="interrupted", error=error)


def what(outcome: Outcome) -> str:
    """``model, history and 3 more; 1.2 GiB``."""
    names = [value.name for value in outcome.results]
    listed = ", ".join(names[:_MOST_NAMED]) or "no names"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{listed}{more}; {format_bytes(sum(value.bytes for value in outcome.results))}"


def to_spill(sizes: Mapping[str, int], budget: int) -> list[str]:
    """The fewest of the runs (the largest ones) that must leave memory so that the rest is within ``budget`` bytes."""
    total = sum(sizes.values())
    chosen = []
    for run, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if total <= budget:
            break
        chosen.append(run)
        total -= size
    return chosen
