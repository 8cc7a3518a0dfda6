"""A run's row in a list, from its view: the times that passed until now, and in words what it waits for."""

from __future__ import annotations

from ..protocol.rest import RunRow, Summary, held_s, queued_s, since_s, summary_of
from ..protocol.runs import Run, RunView, StartEstimate
from .wording import addressed, describe_pauses, next_try_of, wait_words


def own_row(view: RunView, now_s: float) -> RunRow:
    """The row of a run whose outcome is known, as its user is told it."""
    came_out = None if view.outcome is None else summary_of(view.outcome)
    return run_row(view, now_s, came_out, reason=addressed(view.reason, view.user))


def run_row(
    view: RunView,
    now_s: float,
    came_out: Summary | None = None,
    *,
    reason: str | None = None,
    progress: str = "",
    unattended: bool = False,
) -> RunRow:
    """The row of one run. ``came_out``: of one that is over; ``reason``: the view's, as the reader is told it."""
    wait, start, ended = view.waits_for, view.start or StartEstimate(), came_out or Summary()
    told = {name: getattr(view, name) for name in Run.__struct_fields__}
    starts_in = [None if at is None else max(0.0, at - now_s) for at in (start.at, start.earliest, start.latest)]
    return RunRow(
        **told if reason is None else told | {"reason": reason},
        queued_s=queued_s(view, now_s),
        held_s=held_s(view, now_s),
        since_s=since_s(view, now_s),
        start_estimate_s=starts_in[0],
        start_at_least_s=starts_in[1],
        start_at_most_s=starts_in[2],
        start_after=start.after,
        progress=progress,
        unattended=unattended,
        waits_for="" if wait is None else wait_words(wait),
        next_try_at=None if wait is None else next_try_of(wait),
        earlier=describe_pauses(view),
        results=ended.results,
        files=ended.files,
        error=ended.error,
        notes=ended.notes,
    )
