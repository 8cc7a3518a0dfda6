"""The ledger's own runs as a trace, and the cluster that they ran on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import OptionError
from ..protocol.rest import RunRow, StatusDocument
from ..protocol.states import RunState
from .cluster import ClusterSpec, NodeKind
from .replay import Replayed
from .trace import BadRow, Job, Trace, by_age

NAME = "ledger"


def trace_of(rows: Sequence[RunRow]) -> Trace:
    """Make a trace of the runs that held GPUs and have given them back; ``row`` counts the runs, newest first."""
    jobs: list[Job] = []
    left_out: list[BadRow] = []
    for place, row in enumerate(rows, start=1):
        reason = _lack(row)
        if reason:
            left_out.append(BadRow(place, reason))
        else:
            jobs.append(_job(row, place))
    if not jobs:
        raise OptionError("--from-ledger: no run has held GPUs so far", hint="give a trace instead")
    return Trace(NAME, by_age(jobs), tuple(left_out))


def _lack(row: RunRow) -> str:
    if not row.gpus:
        return "takes no GPU"
    if row.granted_at is None:
        return "never got its GPUs"
    if row.gone_at is not None:
        return ""
    return "its end is not known" if RunState.of(row.state).is_terminal else "still holds its GPUs"


def _job(row: RunRow, place: int) -> Job:
    granted_at, gone_at = row.granted_at or 0.0, row.gone_at or 0.0
    return Job(
        index=0,
        submit_s=row.submitted_at,
        duration_s=max(0.0, gone_at - granted_at),
        gpus=row.gpus,
        user=row.user,
        queue=row.queue,
        priority=row.priority,
        gpu_type=row.gpu_name,
        task=f"{row.notebook}#{row.cell}" if row.cell else row.name,
        row=place,
    )


def cluster_of(status: StatusDocument) -> ClusterSpec:
    """The cluster as it is now; nodes that are down count, because they were up when the runs ran."""
    kinds = tuple(NodeKind(len(node.gpus), gpu_type=node.gpus[0].name) for node in status.nodes if node.gpus)
    if not kinds:
        raise OptionError("--from-ledger: the cluster has no GPUs now", hint="describe it with --cluster FILE")
    return ClusterSpec(kinds)


def measured(trace: Trace, rows: Sequence[RunRow], gpus: int) -> Replayed:
    """The replay of what happened: each run started when it was granted its GPUs."""
    starts = [max(job.submit_s, rows[job.row - 1].granted_at or 0.0) for job in trace.jobs]
    return Replayed(trace.jobs, starts, gpus)


def held_over_used(trace: Trace, rows: Sequence[RunRow]) -> float:
    """GPU time from grant to lease gone, divided by that from the first statement to the last."""
    held = used = 0.0
    for job in trace.jobs:
        row = rows[job.row - 1]
        if row.running_at is not None and row.gone_at is not None:
            held += job.gpus * job.duration_s
            used += job.gpus * max(0.0, row.gone_at - (row.release_ms or 0.0) / 1000 - row.running_at)
    return held / used if used > 0 else math.nan
