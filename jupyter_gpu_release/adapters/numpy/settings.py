"""Print options, and reactions to errors in floating point numbers."""

from __future__ import annotations

from typing import Any

from ..adapter import LibrarySettings, Values

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
    "formatter": None,
    "error.divide": "warn",
    "error.over": "warn",
    "error.under": "ignore",
    "error.invalid": "warn",
}


def _write(numpy: Any, name: str, value: Any) -> None:
    kind = name.removeprefix(_ERROR)
    numpy.set_printoptions(**{name: value}) if kind == name else numpy.seterr(**{kind: value})


ALL = (LibrarySettings("numpy", _read, lambda _: _USUAL, _write),)
