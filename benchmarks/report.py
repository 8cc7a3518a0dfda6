"""What a benchmark prints: medians, p95, ratios, and the machine that it ran on."""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table


class CannotMeasureError(Exception):
    """Something that a benchmark needs is not here; says what, and how to get it."""


@dataclass
class Report:
    """Results of one benchmark; ``ratios`` are theirs ÷ ours."""

    name: str
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, metric: str, values: list[float], unit: str = "ms") -> float:
        """Record the values of one metric; returns their median."""
        ordered = sorted(values)
        p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
        median = statistics.median(ordered)
        entry = {"median": round(median, 3), "p95": round(p95, 3), "n": len(ordered), "unit": unit}
        self.results[metric] = entry
        return median

    def document(self) -> dict[str, Any]:
        """The JSON object of interface.md."""
        return {
            "benchmark": self.name,
            "machine": machine(),
            "results": self.results,
            "ratios": self.ratios,
            "notes": self.notes,
        }


def machine() -> dict[str, Any]:
    """Facts about this machine that explain a figure."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
        "date": time.strftime("%Y-%m-%d"),
    }


def show(report: Report) -> None:
    """Print the table."""
    table = Table(title=f"benchmark {report.name}")
    for column in ("metric", "median", "p95", "n", "unit"):
        table.add_column(column, justify="left" if column in ("metric", "unit") else "right")
    for metric, entry in report.results.items():
        table.add_row(metric, *(f"{entry[key]:g}" for key in ("median", "p95", "n")), entry["unit"])
    console = Console()
    console.print(table)
    for name, ratio in report.ratios.items():
        console.print(f"  {name}: {ratio:.1f} ×")
    for note in report.notes:
        console.print(f"  [dim]{note}[/dim]")
