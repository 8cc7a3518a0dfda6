"""``resumable``: a loop that a restartable cell can leave, and enter again in the same round."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

from ..errors import OptionError
from ..units import parse_seconds
from .context import current_context

_Item = TypeVar("_Item")


def resumable(iterable: Iterable[_Item], every: str | float | None = None) -> Iterable[_Item]:
    """Let a restartable cell be preempted between two rounds of this loop, and be resumed with the next one.

    Loops over ``range``, lists and the like need it not. It is for those that are evaluated again, such as
    ``for batch in gpu_release.resumable(batches(data)):``, at the top level of the cell, or there inside ``with``,
    ``if`` or ``try``. Everywhere else (in functions, in other cells, in the kernel) it is ``iterable`` and nothing
    more.

    Parameters
    ----------
    iterable : iterable
        What the loop goes over; may stand inside ``enumerate``, ``zip`` or ``tqdm``.
    every : float or str, optional
        Seconds between two saves without notice, or as options are written: ``"10m"``. ``0``: only when the cell is
        preempted. Not given: the cell saves by itself, for at most 2 % of its time.

    Returns
    -------
    iterable
        ``iterable`` itself.

    Raises
    ------
    OptionError
        ``every`` is no duration.
    """
    every_s = save_interval_s(every, "resumable")
    around = current_context()
    if around is not None:
        around.resumable(every_s, sys._getframe(1))
    return iterable


def save_interval_s(every: str | float | None, function: str) -> float | None:
    """Seconds between two saves, as ``function`` was told; raises OptionError."""
    if every is None:
        return None
    seconds = parse_seconds(every, option=f"{function}(every=…)") if isinstance(every, str) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise OptionError(
            f"{function}(every={every!r}): no duration", hint='give seconds, or a text such as "10m"; 0: never'
        )
    return float(seconds)
