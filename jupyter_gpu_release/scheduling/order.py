"""In which order the queue is served. Today: first come, first served."""

from __future__ import annotations

from collections.abc import Iterable

from .snapshot import QueuedRun


def first_come(queue: Iterable[QueuedRun]) -> list[QueuedRun]:
    """The queue by age of submission."""
    return sorted(queue, key=lambda queued: queued.ordinal)
