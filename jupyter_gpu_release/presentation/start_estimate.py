"""Sentences about the start of a run that waits: when, how sure that is, after whom, and what would be sooner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..units import format_count

if TYPE_CHECKING:
    from ..protocol.rest import OutlookDocument, QueueRow, SoonerAsk
    from ..protocol.runs import RunView

#: bounds that are nearer than this part of the estimate say nothing
_CLOSE = 0.25


def about(seconds: float) -> str:
    """``237 → 'about 4 min'``: as exact as an estimate is."""
    if seconds < 60:
        return f"about {max(1, round(seconds) if seconds < 10 else 5 * round(seconds / 5))} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    if seconds < 36 * 3600:
        return f"about {round(seconds / 3600)} h"
    return f"about {format_count(round(seconds / 86400), 'day')}"


def starts_in(seconds: float) -> str:
    """``'now'``, ``'in about 4 min'``."""
    return "now" if seconds < 1 else f"in {about(seconds)}"


def describe_start(
    in_s: float | None, at_least_s: float | None, at_most_s: float | None, after: str = "", me: str = ""
) -> str:
    """``starts in about 4 min (2 to 9 min), when ann's run has ended``; empty where nothing is known.

    ``after``: the user whose run ends right before; ``me``: who reads this.
    """
    if in_s is None:
        if at_most_s is not None:
            return f"starts within {about(at_most_s)}"
        return "" if not at_least_s else f"starts in {about(at_least_s)} at the earliest"
    whose = "your own run" if after and after == me else f"{after}'s run"
    then = f", when {whose} has ended" if after and in_s >= 1 else ""
    return f"starts {starts_in(in_s)}{_bounds(in_s, at_least_s, at_most_s)}{then}"


def _bounds(in_s: float, at_least_s: float | None, at_most_s: float | None) -> str:
    is_early = at_least_s is not None and at_least_s < in_s * (1 - _CLOSE)
    is_late = at_most_s is None or at_most_s > in_s * (1 + _CLOSE)
    if in_s < 1 or not (is_early or is_late):
        return ""
    least = _bare(in_s if at_least_s is None else at_least_s)
    if at_most_s is None:
        return f" ({least} at the earliest, or much later)"
    most = _bare(at_most_s)
    number, _, unit = least.partition(" ")
    return f" ({number if most.endswith(f' {unit}') else least} to {most})"


def _bare(seconds: float) -> str:
    return about(seconds).removeprefix("about ")


def start_of_view(view: RunView, now_s: float) -> str:
    """The sentence for the line below a cell."""
    start = view.start
    if start is None:
        return ""
    left = [None if at is None else max(0.0, at - now_s) for at in (start.at, start.earliest, start.latest)]
    return describe_start(left[0], left[1], left[2], start.after, view.user)


def start_of_row(row: QueueRow, me: str) -> str:
    """The sentence for a list of those who wait."""
    return describe_start(row.start_estimate_s, row.start_at_least_s, row.start_at_most_s, row.start_after, me)


def describe_outlook(outlook: OutlookDocument, me: str) -> str:
    """When a run would start that is not sent yet, and what would be sooner."""
    if outlook.starts_in_s is not None and outlook.starts_in_s < 1:
        return "it would start at once"
    when = describe_start(outlook.starts_in_s, outlook.at_least_s, outlook.at_most_s, outlook.after, me)
    starts = f"it would start{when.removeprefix('starts')}" if when else "nobody knows when it would start"
    sooner = describe_sooner(outlook.sooner)
    return f"{outlook.reason}; {starts}{f'; sooner: {sooner}' if sooner else ''}"


def describe_sooner(asks: Iterable[SoonerAsk]) -> str:
    """``--gpus 1 (now), --gpu-type a100 (in about 4 min)``."""
    return ", ".join(f"{ask.change} ({starts_in(ask.starts_in_s)})" for ask in asks)
