"""Nodes that are borrowed, simulated and on a real Slurm; a head that is killed."""

from __future__ import annotations

from ..report import Report
from .frontier import add_frontier
from .head import add_head
from .memory import add_memory
from .slurm import add_slurm

PARTS = ("frontier", "slurm", "head", "memory")


def run(*, quick: bool, parts: tuple[str, ...] = PARTS) -> Report:
    """Play notebook sessions, borrow nodes of a Slurm, kill a head of three hosts; ``quick``: few, and once."""
    report = Report("clusters")
    if "frontier" in parts:
        add_frontier(report, quick=quick)
    if "slurm" in parts:
        add_slurm(report, quick=quick)
    for name, add in (("head", add_head), ("memory", add_memory)):
        if name in parts and not (quick and parts == PARTS):  # clusters of their own, asked for by name
            add(report, quick=quick)
    return report
