"""Several processes, several functions: how soon all work, and how soon the next one does."""

from __future__ import annotations

from . import gang_launch
from .bed import bed
from .report import Report


def run(*, quick: bool) -> Report:
    """Measure; ``quick`` takes few repetitions."""
    report = Report("gang")
    with bed() as cluster:
        gang_launch.add_rows(report, cluster, quick=quick)
    return report
