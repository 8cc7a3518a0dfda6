"""``report``: how a trial of a sweep is doing, so that one that does badly is ended early."""

from __future__ import annotations

import operator

from ..errors import OptionError
from .context import current_context


def report(step: int, value: float) -> None:
    """Say in a trial of :func:`.sweep` what its metric is after so many steps.

    Where the sweep's pruner finds it worse than the others were, the trial is interrupted: its GPU is free then.
    Outside of a run it does nothing.

    Parameters
    ----------
    step : int
        Number of the step, such as the epoch; each counts once.
    value : float
        The metric at this step.

    Raises
    ------
    OptionError
        ``step`` is no whole number from 0 on, or ``value`` is no number.
    """
    if isinstance(step, bool) or not hasattr(step, "__index__") or step < 0:  # also NumPy's
        raise OptionError(f"report({step!r}, …): the step is no whole number from 0 on", hint="report(epoch, value)")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise OptionError(
            f"report({step}, …): the value is a {type(value).__name__}, no number", hint="report(epoch, float(value))"
        ) from None
    around = current_context()
    if around is not None:
        around.report(operator.index(step), number)
