"""``search``: a name's place in the space of a ``%%gpu_sweep`` cell, which reads the call as text."""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import OptionError


def search(low: Any, high: Any = None, *, log: bool = False) -> NoReturn:
    """Say in ``name = search(…)`` at the top level of a ``%%gpu_sweep`` cell what is tried for ``name``.

    Parameters
    ----------
    low : number or list
        Lower bound of a range, or the choices.
    high : number, optional
        Upper bound; the range is of whole numbers where both bounds are.
    log : bool
        The range is a logarithmic one.

    Raises
    ------
    OptionError
        It was called elsewhere.
    """
    raise OptionError(
        "search() is for `name = search(…)` at the top level of a `%%gpu_sweep` cell",
        hint="write %%gpu_sweep above the cell; for a function there is sweep(function, space)",
    )
