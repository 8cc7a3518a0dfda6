"""A run's row in a list, from its view: the times that passed until now, and in words what it waits for."""

from __future__ import annotations

import msgspec

from ..protocol.rest import RunRow, Summary, held_s, queued_s, since_s, summary_of
from ..protocol.runs import Run, RunView, StartEstimate
from .wording import describe_pauses, next_try_of, reason_for, wait_words


def own_view(view: RunView) -> RunView:
    """A run that the store tells of, as its user is told it."""
    return msgspec.structs.replace(view, reason=reason_for(view, view.user))


def own_row(view: RunView, now_s: float) -> RunRow:
    """The row of a run whose outcome is known, as its user is told it."""
    came_out = None if view.outcome is None else summary_of(view.outcome)
    return run_row(view, now_s, came_out, me=view.user)


def run_row(
    view: RunView,
    now_s: float,
    came_out: Summary | None = None,
    *,
    me: str = "",
    progress: str = "",
    unattended: bool = False,
) -> RunRow:
    """The row of one run, as it is told to ``me``. ``came_out``: of one that is over."""
    wait, start, ended = view.waits_for, view.start or StartEstimate(), came_out or Summary()
    told = {name: getattr(view, name) for name in Run.__struct_fields__}
    starts_in = [None if at is None else max(0.0, at - now_s) for at in (start.at, start.earliest, start.latest)]
    return RunRow(
        **told | {"reason": reason_for(view, me)},
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
        metric=ended.metric,
    )
