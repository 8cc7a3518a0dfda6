"""The space that a sweep searches: ranges, choices, a list of settings, or a function of the trial."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import OptionError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

Space = Mapping[str, Any] | Sequence[Mapping[str, Any]] | Callable[["Trial"], Mapping[str, Any]]
_PLAIN = (str, int, float, bool, type(None))
#: the parameter of a list of settings: the number of one
SETTING = "setting"
_WRITE = 'write (low, high), (low, high, "log") or a list of choices'


class SearchSpace:
    """``function``: a conditional space; else ``settings``: one of them each; else ``distributions`` by name."""

    def __init__(self, space: Space) -> None:
        self.function = space if callable(space) else None
        self.settings: list[Mapping[str, Any]] = []
        self.distributions: dict[str, BaseDistribution] = {}
        if isinstance(space, Mapping):
            self.distributions = {name: _distribution(name, what) for name, what in space.items()}
        elif self.function is None:
            self.settings = _settings(space)
        if not (self.function or self.settings or self.distributions):
            raise OptionError("the space is empty", hint='name what is searched: {"lr": (1e-4, 1e-1, "log")}')

    @property
    def size(self) -> int | None:
        """Number of its points; None: no end, or nobody knows."""
        if self.function is not None:
            return None
        if self.settings:
            return len(self.settings)
        choices = [getattr(distribution, "choices", None) for distribution in self.distributions.values()]
        return None if None in choices else math.prod(len(each) for each in choices if each is not None)

    def points(self) -> list[dict[str, Any]]:
        """All points of a space that has an end, as Optuna's parameters."""
        if self.settings:
            return [{SETTING: number} for number in range(len(self.settings))]
        choices = [getattr(distribution, "choices", ()) for distribution in self.distributions.values()]
        return [dict(zip(self.distributions, values, strict=True)) for values in itertools.product(*choices)]

    def fixed_points(self, trials: int) -> list[dict[str, Any]]:
        """Those that are tried one after the other, where it is not for the sampler to choose."""
        return self.points()[:trials] if self.settings or self.size == trials else []

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """The parameters of a trial, for the function."""
        if self.function is not None:
            return _plain_parameters(self.function(trial))
        if self.settings:
            return dict(self.settings[trial.suggest_int(SETTING, 0, len(self.settings) - 1)])
        return {name: _suggest(trial, name, each) for name, each in self.distributions.items()}

    def examples(self) -> list[Mapping[str, Any]]:
        """Parameters as a trial may get them: whether the function takes them. Of a function nobody knows."""
        return self.settings or ([dict.fromkeys(self.distributions)] if self.distributions else [])


def _suggest(trial: Trial, name: str, within: BaseDistribution) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(within, CategoricalDistribution):
        return trial.suggest_categorical(name, within.choices)
    if isinstance(within, IntDistribution):
        return trial.suggest_int(name, within.low, within.high, log=within.log)
    assert isinstance(within, FloatDistribution)
    return trial.suggest_float(name, within.low, within.high, log=within.log)


def _settings(space: Any) -> list[Mapping[str, Any]]:
    if not isinstance(space, Sequence) or isinstance(space, str) or not all(isinstance(one, Mapping) for one in space):
        raise OptionError(
            f"the space is a {type(space).__name__}", hint="give a dict, a list of dicts, or a function of the trial"
        )
    return [_plain_parameters(one) for one in space]


def _plain_parameters(parameters: Any) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        raise OptionError(
            f"the space's function returned {type(parameters).__name__}", hint="return a dict of parameters"
        )
    for name, value in parameters.items():
        if not isinstance(name, str) or not _is_plain(value):
            raise OptionError(
                f"parameter {name}: a value of type {type(value).__name__} cannot be searched",
                hint="give numbers, texts, True, False, None, or lists of them; make the rest in the function",
            )
    return dict(parameters)


def _is_plain(value: Any) -> bool:
    """Tell if its ``repr`` is the value."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN and not (isinstance(value, float) and not math.isfinite(value))


def _distribution(name: str, what: Any) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution

    if isinstance(what, list):
        choices = _plain_parameters(dict.fromkeys([name], what))[name]
        if not choices or any(isinstance(choice, list | tuple) for choice in choices):
            raise OptionError(f"{name}={what!r}: no choices", hint="give a list of numbers, texts, True, False or None")
        return CategoricalDistribution(choices)
    if isinstance(what, tuple) and len(what) in (2, 3) and what[2:] in ((), ("log",)):
        return _range(name, what[0], what[1], is_log=len(what) == 3)
    raise OptionError(f"{name}={what!r}: no range and no choices", hint=_WRITE)


def _range(name: str, low: Any, high: Any, *, is_log: bool) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
            raise OptionError(f"{name}: {bound!r} is no bound of a range", hint=_WRITE)
    if low >= high:
        raise OptionError(f"{name}: the range from {low} to {high} is empty", hint="the lower bound comes first")
    if is_log and low <= 0:
        raise OptionError(
            f"{name}: a logarithmic range cannot begin at {low}", hint='begin above 0, or leave "log" out'
        )
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=is_log)
    return FloatDistribution(float(low), float(high), log=is_log)
