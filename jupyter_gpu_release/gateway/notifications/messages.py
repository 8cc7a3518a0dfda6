"""Words of the messages that tell a user of a run. Pure. No source code, no values: a name, an outcome, times."""

from __future__ import annotations

import re

from ...presentation.wording import describe_pause, reason_for
from ...protocol.rest import held_s
from ...protocol.runs import Outcome, RunView
from ...protocol.states import RunState
from ...units import format_count, format_seconds

START, PAUSE, END, TEST = "start", "pause", "end", "test"
_ENDS = {
    RunState.SUCCEEDED: "has succeeded",
    RunState.FAILED: "has failed",
    RunState.CANCELLED: "was cancelled",
    RunState.LOST: "was lost",
}
_LONGEST_NAME = 120


def run_name(view: RunView) -> str:
    """The name that a user knows a run by: its own, else where its cell stands; never a line of its code."""
    text = view.name or view.origin or view.run
    plain = re.sub(r"[\x00-\x1f\x7f\u2028\u2029]+", " ", text).strip()
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 1]}…"


def subject_of(view: RunView, event: str) -> str:
    """One line: what happened to which run."""
    if event == START:
        return f"{run_name(view)} {'goes on' if view.attempts else 'has started'}"
    if event == PAUSE:
        return f"{run_name(view)} was stopped, and goes on later"
    return f"{run_name(view)} {_ENDS[RunState.of(view.state)]}"


def text_of(view: RunView, event: str, outcome: Outcome | None, link: str) -> str:
    """A few sentences: what happened, how long it took, how to get what came out."""
    origin = f" ({view.origin})" if view.origin and view.name else ""
    parts = [f"Your run {run_name(view)}{origin}, {view.run}: {_happened(view, event)}."]
    if event == END:
        parts += [*_times(view), *_why(view, outcome), *_fetch(view, outcome)]
    elif event == PAUSE:
        parts.append("It is queued at its old place; nothing has to be done.")
    else:
        parts.append(f"`jupyter gpu attach {view.run}` shows its output as it comes.")
    if link:
        parts.append(f"Its page: {link.replace('{run}', view.run)}")
    return "\n".join(parts) + "\n"


def facts_of(view: RunView, event: str) -> dict[str, str | float]:
    """Facts of a run for a program behind a webhook."""
    return {
        "event": event,
        "run": view.run,
        "name": view.name,
        "origin": view.origin,
        "state": view.state,
        "user": view.user,
        "gpus": view.gpus,
        "waited_s": round(_waited_in_all_s(view) if event == END else _waited_s(view), 1),
        "held_s": round(held_s(view, view.granted_at or 0.0), 1),
    }


def waited_long(view: RunView, least_s: float) -> bool:
    """Tell if a run that starts had to wait for so long that its user has turned to something else."""
    return _waited_s(view) >= least_s


def _happened(view: RunView, event: str) -> str:
    if event == START:
        again = " again" if view.attempts else ""
        return f"it has its {format_count(view.gpus, 'GPU')}{again} after {format_seconds(_waited_s(view))} of waiting"
    if event == PAUSE:
        return describe_pause(view.attempts[-1], view.user)
    return f"it {_ENDS[RunState.of(view.state)]}"


def _times(view: RunView) -> list[str]:
    if view.granted_at is None:
        return ["It never had its GPUs."] if view.gpus else ["It never began."]
    held = f"held {format_count(view.gpus, 'GPU')}" if view.gpus else "ran without a GPU"
    for_s = held_s(view, view.granted_at)
    return [f"It waited for {format_seconds(_waited_in_all_s(view))} and {held} for {format_seconds(for_s)}."]


def _why(view: RunView, outcome: Outcome | None) -> list[str]:
    """The kind of error alone: its message may hold data."""
    reason = reason_for(view, view.user)
    if outcome is not None and outcome.error is not None and not outcome.error.code:
        return [f"The error: {outcome.error.ename}."]
    return [f"The reason: {reason}."] if reason and view.state != RunState.SUCCEEDED.word else []


def _fetch(view: RunView, outcome: Outcome | None) -> list[str]:
    what = "results and output" if outcome is not None and outcome.results else "output"
    return [f"For its {what}: %gpu_attach {view.run} in a notebook, or `jupyter gpu attach {view.run}`."]


def _waited_s(view: RunView) -> float:
    """Of a run that goes on, since it was stopped the last time."""
    since = view.attempts[-1].gone_at if view.attempts else view.submitted_at
    until = view.granted_at if view.granted_at is not None else view.finished_at
    return max(0.0, (until or since) - since)


def _waited_in_all_s(view: RunView) -> float:
    """The waiting before each of its parts, the last one included."""
    since = [view.submitted_at, *(past.gone_at for past in view.attempts[:-1])] if view.attempts else []
    before_s = sum(max(0.0, past.granted_at - at) for past, at in zip(view.attempts, since, strict=True))
    return before_s + _waited_s(view)
