"""Rows of ``runs``, made from a run's view and what is shown of its end."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.rest import RunError, RunRow
from ..protocol.runs import FileInfo, Outcome, RunView, ValueInfo
from .wording import describe_wait


def run_row(
    view: RunView,
    now_s: float,
    *,
    results: Sequence[ValueInfo] = (),
    files: Sequence[FileInfo] = (),
    notes: Sequence[str] = (),
    error: RunError | None = None,
) -> RunRow:
    """One run for ``runs --json``. Of one that is not over there is nothing to show but the view."""
    return RunRow(
        run=view.run, user=view.user, state=view.state, gpus=view.gpus, ranks=view.ranks, name=view.name,
        notebook=view.notebook, cell=view.cell, queue=view.queue, priority=view.priority, simulated=view.simulated,
        submitted_at=view.submitted_at, granted_at=view.granted_at, running_at=view.running_at, gone_at=view.gone_at,
        finished_at=view.finished_at, queued_s=queued_s(view, now_s), held_s=held_s(view, now_s),
        release_ms=view.release_ms, position=view.position, reason=view.reason, hosts=view.hosts,
        gpu_ids=view.gpu_ids, gpu_name=view.gpu_name, results=list(results), files=list(files), notes=list(notes),
        error=error, detached=view.detached, pinned=view.pinned, collected_at=view.collected_at,
        collected_because=view.collected_because, imported_from=view.imported_from, waits_for=waits_of(view),
    )  # fmt: skip


def row_of_outcome(view: RunView, outcome: Outcome | None, now_s: float) -> RunRow:
    """The same with a run's whole outcome at hand."""
    if outcome is None:
        return run_row(view, now_s)
    error = outcome.error
    shown = None if error is None else RunError(error.ename, error.evalue, error.code, error.hint)
    return run_row(view, now_s, results=outcome.results, files=outcome.files, notes=outcome.notes, error=shown)


def waits_of(view: RunView) -> str:
    """The reason why a run's results are not durable yet, in words; empty when they are."""
    return describe_wait(view.waits_for) if view.waits_for is not None else ""


def queued_s(view: RunView, now_s: float) -> float:
    """Seconds from submission to grant (or to the end, or until now)."""
    return max(0.0, (view.granted_at or view.finished_at or now_s) - view.submitted_at)


def held_s(view: RunView, now_s: float) -> float:
    """Seconds from grant to lease gone (or until now); 0 for a run that held nothing."""
    if view.granted_at is None:
        return 0.0
    return max(0.0, (view.gone_at or view.finished_at or now_s) - view.granted_at)
