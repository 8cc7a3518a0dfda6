"""``jupyter gpu gc``: what went (or would go), why, and how much that frees."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable

from rich.console import Console

from ...errors import GatewayUnavailableError
from ...protocol.admin import GcDocument, StoredRow
from ...units import format_bytes, format_count
from ..connect import open_gateway
from ..runs import print_json
from ..tables import output_console, write_columns

#: reading the store of many thousand runs takes its time
_PATIENCE_S = 3600.0


def run(arguments: argparse.Namespace) -> int:
    """Collect through the gateway: it alone knows which runs are pinned, live or held by a kernel."""
    asked = {"older_than_s": round(arguments.older_than), "keep": arguments.keep, "quota_bytes": arguments.quota}
    limits = {name: limit for name, limit in asked.items() if limit}
    try:
        with open_gateway(timeout_s=_PATIENCE_S) as gateway:
            document = gateway.collect(dry_run=arguments.dry_run, **limits)
    except GatewayUnavailableError as error:
        raise GatewayUnavailableError(
            f"{error.message}; without it nobody knows which results are pinned or in use, so nothing is removed",
            hint=error.hint,
        ) from error
    if arguments.json:
        print_json(document)
    else:
        print_collection(output_console(), document)
    return 0


def print_collection(console: Console, document: GcDocument) -> None:
    """Of a dry run first the sizes of what there is; the removals one a line, then the sum, what stayed and why."""
    if document.stored:
        _print_sizes(console, document.stored)
    if document.removals or document.studies:
        rows = [[r.run, r.user, format_bytes(r.bytes), r.reason] for r in document.removals]
        rows += [[f"study {s.name}", s.user, format_bytes(s.bytes), s.reason] for s in document.studies]
        write_columns(console, ["run", "user", "frees", "why"], rows, {})
    console.print(_sum(document), markup=False)
    if document.kept:
        kept = ", ".join(f"{count} {why}" for why, count in sorted(document.kept.items()))
        console.print(f"  stay in any case: {kept}", markup=False)
    if not document.has_limits:
        console.print(
            "  No limits are set, so no run's results go: name some (--older-than 30d --keep 20 --quota 50GiB).",
            markup=False,
        )
    for note in document.notes:
        console.print(f"  · {note}", markup=False)


def _print_sizes(console: Console, stored: Iterable[StoredRow]) -> None:
    """Each user's sum, then that of each of the user's notebooks with its largest run; the largest first."""
    by_user: dict[str, dict[str, list[StoredRow]]] = defaultdict(lambda: defaultdict(list))
    for row in stored:
        by_user[row.user][row.notebook].append(row)
    rows = []
    for user, notebooks in sorted(by_user.items(), key=lambda item: -_size(*item[1].values())):
        everything = list(notebooks.values())
        rows.append([user, "all", str(sum(map(len, everything))), format_bytes(_size(*everything)), ""])
        for notebook, runs in sorted(notebooks.items(), key=lambda item: -_size(item[1])):
            largest = max(runs, key=lambda row: row.bytes)
            size = f"{largest.run} ({format_bytes(largest.bytes)})"
            rows.append([user, notebook or "(no notebook)", str(len(runs)), format_bytes(_size(runs)), size])
    write_columns(console, ["user", "notebook", "runs", "on the store", "largest run"], rows, {})
    console.print()


def _size(*groups: Iterable[StoredRow]) -> int:
    return sum(row.bytes for group in groups for row in group)


def _sum(document: GcDocument) -> str:
    would = "would be " if document.dry_run else ""
    count = len(document.removals)
    parts = [f"results of {format_count(count, 'run')}"]
    if document.blobs:
        parts.append(format_count(document.blobs, "unused blob"))
    if document.orphans:
        parts.append(f"{format_count(len(document.orphans), 'folder')} of submissions that never ran")
    if document.studies:
        parts.append("1 study of a sweep" if len(document.studies) == 1 else f"{len(document.studies)} studies")
    if document.environments:
        parts.append(format_count(len(document.environments), "unused environment"))
    return f"{', '.join(parts)} {would}removed: {format_bytes(document.freed_bytes)} {would}freed."
