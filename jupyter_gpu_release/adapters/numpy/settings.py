"""Print options, and reactions to errors in floating point numbers."""

from __future__ import annotations

import sys
from typing import Any

from ... import streams
from ..adapter import LibrarySettings, Values

#: print options that each call of ``set_printoptions`` resets
_RESET = ("formatter", "override_repr")
#: ``seterr``
_ERROR = "error."


def _read(numpy: Any) -> Values:
    options = numpy.get_printoptions()
    errors = {f"{_ERROR}{kind}": reaction for kind, reaction in numpy.geterr().items()}
    return {**{name: options[name] for name in _USUAL if name in options}, **errors}


_USUAL = {
    "edgeitems": 3,
    "threshold": 1000,
    "precision": 8,
    "suppress": False,
    "linewidth": 75,
    "nanstr": "nan",
    "infstr": "inf",
    "sign": "-",
    "floatmode": "maxprec",
    "legacy": False,
    "override_repr": None,
    "formatter": None,
    "error.divide": "warn",
    "error.over": "warn",
    "error.under": "ignore",
    "error.invalid": "warn",
}


def _write(numpy: Any, name: str, value: Any) -> None:
    kind = name.removeprefix(_ERROR)
    if kind != name:
        numpy.seterr(**{kind: value})
        return
    options = numpy.get_printoptions()
    numpy.set_printoptions(**{each: options[each] for each in _RESET if each in options} | {name: value})


# ------------------------------------------------------------------------------ what ``seterrcall`` was told
class _Calling(type):
    """The attribute of its class is what numpy calls, or writes to."""

    def __setattr__(cls, _name: str, value: Any) -> None:
        sys.modules["numpy"].seterrcall(value)


class ToldNumpy(metaclass=_Calling):
    """The function that numpy calls, or the object that it writes to, where ``seterr`` says so."""

    __module__ = streams.__name__


def told() -> list[tuple[type, str, Any]]:
    """It, if there is any."""
    value = getattr(sys.modules["numpy"], "geterrcall", lambda: None)()
    return [] if value is None else [(ToldNumpy, "function of seterrcall", value)]


ALL = (LibrarySettings("numpy", _read, lambda _: _USUAL, _write),)
