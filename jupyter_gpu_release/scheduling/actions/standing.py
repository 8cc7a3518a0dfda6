"""Runs for which others may be asked to step aside."""

from __future__ import annotations

from ..state import Job, State
from ..vetoes import never


def candidates(state: State) -> list[Job]:
    """Waiting runs that could start if enough others stepped aside."""
    return [job for job in state.waiting() if job.step() and never(state, job) is None]
