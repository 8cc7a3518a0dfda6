"""Nodes that are borrowed: hours held for each one used, and waits (simulated); seconds on a real Slurm."""

from __future__ import annotations

from ..report import Report
from .frontier import add_frontier
from .slurm import add_slurm

PARTS = ("frontier", "slurm")


def run(*, quick: bool, parts: tuple[str, ...] = PARTS) -> Report:
    """Play notebook sessions, and borrow nodes of a Slurm on this machine; ``quick``: few, and once."""
    report = Report("clusters")
    if "frontier" in parts:
        add_frontier(report, quick=quick)
    if "slurm" in parts:
        add_slurm(report, quick=quick)
    return report
