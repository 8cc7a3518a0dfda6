"""Runs for which others may be asked to step aside."""

from __future__ import annotations

from collections.abc import Callable

from ..plugins.vetoes import never
from ..state import Job, State
from .victims import may_be_taken


def could_start(state: State) -> Callable[[Job], bool]:
    """Tell of a waiting run if it could start when enough others stepped aside."""
    return lambda job: never(state, job) is None


def movable(state: State, now_s: float) -> list[Job]:
    """Runs that may be asked to step aside."""
    return [job for job in state.takeable.values() if may_be_taken(state, job, now_s)]
