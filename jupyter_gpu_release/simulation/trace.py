"""Traces: the jobs of a cluster over weeks, read from CSV."""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from ..errors import OptionError
from ..scheduling.workload import gpu_number, in_thousandths
from ..settings.built_in import BUILT_IN
from ..units import format_count

_COLUMNS = ("submit_s", "duration_s", "gpus")
_HINT = "columns: submit_s,duration_s,gpus and, if known, user,queue,priority,gpu_type (times in seconds)"
_NAMED_ROWS = 8
_LEAST_PART: float = BUILT_IN["least_gpu_part"].default
_PRIORITY = re.compile(r"low|normal|high|[0-9]{1,6}(\.[0-9]*)?")


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a trace. ``index`` is its place by age; policies that know no durations must not read ``duration_s``."""

    index: int
    submit_s: float
    duration_s: float
    gpus: float
    user: str = ""
    queue: str = ""
    priority: str = ""
    gpu_type: str = ""
    #: which cell or function it was, where the ledger knows
    task: str = ""
    #: its line in the file
    row: int = 0


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out; ``row`` is its line in the file, where the header is line 1."""

    row: int
    reason: str


@dataclass(frozen=True)
class Trace:
    """Jobs by age, and the rows that could not be read."""

    name: str
    jobs: tuple[Job, ...]
    left_out: tuple[BadRow, ...] = ()

    def explain_left_out(self) -> str:
        """How many rows were left out, which, and why; empty when none was."""
        if not self.left_out:
            return ""
        reasons: dict[str, list[int]] = {}
        for bad in self.left_out:
            reasons.setdefault(bad.reason, []).append(bad.row)
        parts = [f"{reason} ({_rows(rows)})" for reason, rows in reasons.items()]
        return f"{format_count(len(self.left_out), 'row')} of {self.name} left out: {'; '.join(parts)}"


def _rows(rows: list[int]) -> str:
    named = ", ".join(map(str, rows[:_NAMED_ROWS]))
    more = f" and {len(rows) - _NAMED_ROWS} more" if len(rows) > _NAMED_ROWS else ""
    return f"row{'' if len(rows) == 1 else 's'} {named}{more}"


def without_too_large(trace: Trace, fitting: Callable[[str], int]) -> Trace:
    """Leave out jobs that never fit; ``fitting`` tells how many GPUs of a type the cluster has."""
    rows, jobs = list(trace.left_out), []
    for job in trace.jobs:
        if job.gpus <= (most := fitting(job.gpu_type)):
            jobs.append(job)
        else:
            of_type = f" of type {job.gpu_type}" if job.gpu_type else ""
            rows.append(BadRow(job.row, f"asks for {job.gpus} GPUs{of_type}, the cluster has {most}"))
    if not jobs:
        raise OptionError(f"{trace.name}: no job fits the cluster", hint="give a larger --cluster")
    return Trace(trace.name, by_age(jobs), tuple(sorted(rows, key=lambda bad: bad.row)))


def read_trace(path: Path) -> Trace:
    """Read a trace from ``.csv`` or ``.csv.gz``; raises :class:`OptionError` when no row of it can be used."""
    try:
        with _open(path) as file:
            return _read(file, path.name)
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OptionError(f"{path}: {reason}", hint="give a trace (CSV or .csv.gz) that can be read") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{path}: not text in UTF-8", hint=_HINT) from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _read(file: Iterable[str], name: str) -> Trace:
    reader = csv.DictReader(file, restkey="", skipinitialspace=True)
    lacking = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
    if lacking:
        raise OptionError(f"{name}: no column {', '.join(lacking)}", hint=_HINT)
    jobs: list[Job] = []
    bad: list[BadRow] = []
    for line, row in _lines(reader, bad):
        job = _job(row, line)
        if isinstance(job, str):
            bad.append(BadRow(line, job))
        else:
            jobs.append(job)
    if not jobs:
        why = f": {bad[0].reason} (row {bad[0].row})" if bad else ""
        raise OptionError(f"{name}: no row can be used{why}", hint=_HINT)
    return Trace(name, by_age(jobs), tuple(sorted(bad, key=lambda row: row.row)))


def _lines(reader: csv.DictReader[str], bad: list[BadRow]) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            bad.append(BadRow(reader.line_num, str(error)))
            continue
        yield reader.line_num, row


def by_age(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Sort by submission (of one instant: shorter, then smaller first, so that the file's order decides nothing)."""
    ordered = sorted(jobs, key=lambda job: (job.submit_s, job.duration_s, job.gpus, job.user))
    return tuple(replace(job, index=index) for index, job in enumerate(ordered))


def _job(row: Mapping[str, str | None], line: int) -> Job | str:
    """The job of a row, or why it is none."""
    numbers = {}
    for column in _COLUMNS:
        text = (row.get(column) or "").strip()
        try:
            numbers[column] = float(text)
        except ValueError:
            return f"{column} is not a number" if text else f"{column} is empty"
        if not math.isfinite(numbers[column]):
            return f"{column} is not finite"
    if numbers["duration_s"] < 0:
        return "duration_s is negative"
    if not _is_count(numbers["gpus"]):
        return "gpus is neither a whole number of at least 1 nor a part such as 0.5"
    words = {name: (row.get(name) or "").strip() for name in ("user", "queue", "priority", "gpu_type")}
    if words["priority"] and not _PRIORITY.fullmatch(words["priority"]):
        return "priority is neither low, normal, high nor a number"
    return Job(
        0, numbers["submit_s"], numbers["duration_s"], gpu_number(in_thousandths(numbers["gpus"])), **words, row=line
    )


def _is_count(gpus: float) -> bool:
    """Whole GPUs, or hundredths of one."""
    return gpus == int(gpus) >= 1 or (_LEAST_PART <= gpus < 1 and in_thousandths(gpus) % 10 == 0)
