"""Cells that step aside: from the notice to the next run's first statement, what is done again, what saving costs."""

from __future__ import annotations

from ..bed import bed, kernel
from ..report import Report
from . import handover, killed, saving, training


def run(*, quick: bool) -> Report:
    """Measure; ``quick`` takes few repetitions."""
    report = Report("preemption")
    with bed() as cluster, kernel(cluster.work) as low:
        with kernel(cluster.work) as high:
            handover.add_rows(report, cluster, low, high, count=2 if quick else 20)
        training.add_rows(report, cluster, low, points=3 if quick else 20)
        saving.add_rows(report, low, quick=quick)
        killed.add_rows(report, cluster, low, count=1 if quick else 5)
    return report
