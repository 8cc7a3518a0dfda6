"""The report on a trace: several policies side by side, as a JSON document, as tables and as a page with charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.box import HEAVY_HEAD, SIMPLE_HEAD, Box
from rich.console import Console
from rich.table import Table

from ..units import format_seconds
from .cluster import ClusterSpec, FreeGpus
from .metrics import figures
from .replay import Replayed, SimulatedPolicy, replay
from .trace import Trace, without_too_large

PolicyMaker = Callable[[FreeGpus], SimulatedPolicy]


@dataclass(frozen=True)
class Column:
    """A policy, and the cluster that it has."""

    cluster: ClusterSpec
    make: PolicyMaker


@dataclass(frozen=True)
class Comparison:
    """One trace, several columns; ``gpus``: of the largest cluster."""

    trace: Trace
    gpus: int
    replayed: Mapping[str, Replayed]
    figures: Mapping[str, Mapping[str, Any]]

    def document(self) -> dict[str, Any]:
        """Make the document of ``simulate --json``."""
        left_out = {
            "rows": len(self.trace.left_out),
            "first": [[bad.row, bad.reason] for bad in self.trace.left_out[:20]],
        }
        return {
            "schema_version": 1,
            "trace": self.trace.name,
            "gpus": self.gpus,
            "jobs": len(self.trace.jobs),
            "left_out": left_out,
            "policies": dict(self.figures),
        }


def with_measured(comparison: Comparison, found: Replayed, held_over_used: float) -> Comparison:
    """Put what happened beside what would have."""
    column = {**figures(found), "held_over_used": None if math.isnan(held_over_used) else round(held_over_used, 4)}
    return replace(
        comparison,
        replayed={"measured": found, **comparison.replayed},
        figures={"measured": column, **comparison.figures},
    )


def compare(
    trace: Trace, columns: Mapping[str, Column], progress: Callable[[str, int], None] = lambda name, started: None
) -> Comparison:
    """Replay what fits all clusters for each column; ``progress`` hears its name and how many jobs have started."""
    clusters = [column.cluster for column in columns.values()]
    fitting = without_too_large(trace, lambda gpu_type: min(cluster.fitting(gpu_type) for cluster in clusters))
    replayed = {
        name: replay(fitting.jobs, column.cluster, column.make, partial(progress, name))
        for name, column in columns.items()
    }
    most = max(cluster.gpus for cluster in clusters)
    return Comparison(fitting, most, replayed, {name: figures(found) for name, found in replayed.items()})


_ROWS: tuple[tuple[str, str, bool], ...] = (
    ("mean wait", "mean_wait_s", True),
    ("median wait", "p50_wait_s", True),
    ("90 % wait at most", "p90_wait_s", True),
    ("99 % wait at most", "p99_wait_s", True),
    ("longest wait", "longest_wait_s", True),
    ("longest overtaken", "max_overtaken_s", True),
    ("bounded slowdown", "bounded_slowdown", False),
    ("makespan", "makespan_s", True),
    ("utilization", "utilization", False),
    ("Jain's index", "jain", False),
    ("max-min share", "max_min_share", False),
    ("GPU-hours held ÷ used", "held_over_used", False),
)


def table_rows(found: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Rows of the main table: a figure each, a column a policy."""
    return [[title, *(_shown(of[key], is_time=is_time) for of in found.values())] for title, key, is_time in _ROWS]


def _shown(value: float | None, *, is_time: bool) -> str:
    if value is None:
        return "-"
    return format_seconds(value) if is_time else f"{value:.4g}"


_UNLIMITED = 10_000
#: figures of a wait that a terminal has room for, and all
SHORT = ("mean_wait_s", "p99_wait_s")
ALL = ("mean_wait_s", "p50_wait_s", "p90_wait_s", "p99_wait_s")


def group_rows(found: Mapping[str, Mapping[str, Any]], key: str, shown: Sequence[str] = SHORT) -> list[list[str]]:
    """Rows of the table by size or by queue: jobs, then these figures of each policy."""
    groups: Sequence[Any] = list(next(iter(found.values()))[key])
    rows = []
    for group in groups:
        cells = [" · ".join(format_seconds(of[key][group][name]) for name in shown) for of in found.values()]
        rows.append([str(group), str(next(iter(found.values()))[key][group]["jobs"]), *cells])
    return rows


def print_report(console: Console, comparison: Comparison) -> None:
    """Print the tables."""
    trace, names = comparison.trace, list(comparison.figures)
    console.print(f"{trace.name}: {len(trace.jobs)} jobs on {comparison.gpus} GPUs", markup=False)
    if trace.left_out:
        console.print(trace.explain_left_out(), markup=False)
    _print(console, ["", *names], table_rows(comparison.figures))
    for title, key in (("GPUs", "by_size"), ("queue or user", "by_queue")):
        console.print(f"wait by {title}: mean · 99 % at most", markup=False)
        _print(console, [title, "jobs", *names], group_rows(comparison.figures, key))


def _print(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Where a table is wider than the terminal each cell's figures are below one another, and no lines between them."""
    table = _table(heads, rows)
    if console.measure(table, options=console.options.update(max_width=_UNLIMITED)).maximum > console.width:
        heads = [head.replace("_", "_\n") for head in heads]
        table = _table(heads, [[cell.replace(" · ", "\n") for cell in row] for row in rows], SIMPLE_HEAD)
    console.print(table)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], box: Box = HEAVY_HEAD) -> Table:
    """Fold names that have no room in their column: all of a name is there, and figures are in one line."""
    table = Table(box=box, show_edge=box is HEAVY_HEAD)
    for at, head in enumerate(heads):
        table.add_column(head, justify="right" if at else "left", overflow="fold", no_wrap=at > 0)
    for row in rows:
        table.add_row(*row)
    return table
