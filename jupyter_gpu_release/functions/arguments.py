"""The call's signature, and launch's own keywords."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ..errors import CannotSendError, OptionError, WrongCallError
from ..options.definitions import OPTIONS, Option, Written, nearest
from ..protocol.cell import RESULT
from .call_title import call_title
from .map_worker import await_items, call_items
from .written_trial import HOLE, WrittenTrial

_FUNCTION = "__gpu_function__"
_LONGEST_SOURCE = 1 << 16


@dataclass(frozen=True)
class Call:
    """``function(*args, **kwargs)``; making one raises what cannot be called or sent."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: what helps (the function's name, a keyword that it does not have and the value → words)
    hint: Callable[[str, str, Any], str] = lambda *_: ""

    def __post_init__(self) -> None:
        self._check_kind()
        self._check_arguments()

    @property
    def name(self) -> str:
        """The name that people use for the function."""
        named = _innermost(self.function)
        return str(getattr(named, "__name__", None) or type(named).__name__)

    @property
    def statement(self) -> str:
        """The statement that the rank executes; the values stand for themselves under names of ours."""
        given = [self._argument(number) for number in range(len(self.args))]
        given += [f"**{{{key!r}: {self._argument(number)}}}" for number, key in enumerate(self.kwargs, len(self.args))]
        wait = "await " if inspect.iscoroutinefunction(_innermost(self.function)) else ""
        return f"{RESULT} = {wait}{_FUNCTION}({', '.join(given)})"

    @property
    def values(self) -> dict[str, Any]:
        """The values that are sent for the call itself, by name in the rank."""
        given = [*self.args, *self.kwargs.values()]
        return {_FUNCTION: self.function, **{self._argument(number): value for number, value in enumerate(given)}}

    @property
    def labels(self) -> dict[str, str]:
        """Name in the rank → what people call it: the function's name, and its parameters'."""
        found = {_FUNCTION: self.name}
        for number, name in enumerate([*self._positional_names(), *self.kwargs]):
            found[self._argument(number)] = name
        return found

    @property
    def shown(self) -> str:
        """The call as lists of runs show it."""
        return call_title(self.name, zip(self._positional_names(), self.args, strict=True), self.kwargs)

    @property
    def source(self) -> str:
        """The function's text where it can be had, for those who look at the run later."""
        try:
            text = inspect.getsource(_innermost(self.function))
        except (OSError, TypeError):
            return f"{self.name}(…)"
        return inspect.cleandoc(text) if len(text) <= _LONGEST_SOURCE else f"{self.name}(…)"

    @staticmethod
    def _argument(number: int) -> str:
        return f"__gpu_argument_{number}__"

    def _positional_names(self) -> list[str]:
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [parameter.name for parameter in parameters if parameter.kind in kinds]
        return [names[n] if n < len(names) else f"argument {n + 1}" for n in range(len(self.args))]

    def _check_kind(self) -> None:
        function = _innermost(self.function)
        if not callable(function):
            raise CannotSendError(
                f"cannot launch {_shown(function)}: it is no function but of type {type(function).__name__}",
                hint="name the function and its arguments: launch(train, data), not launch(train(data))",
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise CannotSendError(
                f"cannot launch {self.name}: it yields values one by one, and a generator cannot leave its process",
                hint="return a list of the values, or publish() them while it runs",
            )

    def _check_arguments(self) -> None:
        """Refuse a wrong call as the call itself would: here, not after queueing."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # a function of an extension module need not have one
            return
        try:
            signature.bind(*self.args, **self.kwargs)
        except TypeError as error:
            unknown = [item for item in self.kwargs.items() if item[0] not in signature.parameters]
            hints = filter(None, (self.hint(self.name, *item) for item in unknown))
            raise WrongCallError(f"{self.name}() {error}", hint=next(hints, "")) from None


_MAPPED, _ITEMS, _KEYWORDS = "__gpu_mapped__", "__gpu_items__", "__gpu_keywords__"


class MapCall(Call):
    """``function(item, **kwargs)`` for one item after the other; ``args`` is the list of items alone."""

    @property
    def statement(self) -> str:
        """As of one call: the loop of a worker."""
        wait = "await " if self._is_awaited else ""
        return f"{RESULT} = {wait}{_FUNCTION}({_MAPPED}, {_ITEMS}, {_KEYWORDS})"

    @property
    def values(self) -> dict[str, Any]:
        """The loop, the function, all items and what each call gets besides."""
        loop = await_items if self._is_awaited else call_items
        return {_FUNCTION: loop, _MAPPED: self.function, _ITEMS: self.args[0], _KEYWORDS: dict(self.kwargs)}

    @property
    def labels(self) -> dict[str, str]:
        """Names that people know for them."""
        return {_MAPPED: self.name, _ITEMS: "items", _KEYWORDS: "kwargs"}

    @property
    def shown(self) -> str:
        """Its name says it: there may be thousands of items."""
        return ""

    @property
    def _is_awaited(self) -> bool:
        return inspect.iscoroutinefunction(_innermost(self.function))

    def _check_arguments(self) -> None:
        Call(self.function, [None], self.kwargs, self.hint)


class TrialCall(Call):
    """``function(**kwargs)`` with the parameters of a trial, which :attr:`written` has places for."""

    @property
    def written(self) -> WrittenTrial:
        """The trials' statement as text."""
        return WrittenTrial(
            self.name, f"{self.name}()", self.statement.replace(f"{_FUNCTION}(", f"{_FUNCTION}(**{HOLE}, ", 1)
        )

    def check_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Refuse parameters that the function does not take."""
        both = sorted(parameters.keys() & self.kwargs.keys())
        if both:
            raise OptionError(f"{both[0]} is searched and given as well", hint=f"leave out one {both[0]} of the two")
        hint = self.hint  # of keywords that were given, not of what is searched
        try:
            Call(
                self.function,
                (),
                {**self.kwargs, **parameters},
                lambda name, key, value: "" if key in parameters else hint(name, key, value),
            )
        except WrongCallError as error:
            usual = f"{self.name}() gets what the space names, and what kwargs= has"
            raise WrongCallError(error.message, hint=error.hint or usual) from None

    def _check_arguments(self) -> None:
        """The call is not complete without its parameters: :meth:`check_parameters`."""


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


#: belong to cells: names of the notebook, ways of waiting, what is shown → what functions have instead
_OF_CELLS = {
    "in": "what a function reads is found, and send='name' sends one more",
    "out": "what comes back from a function is what it returns",
    "estimate": "`%%gpu_train --estimate` shows it for a cell",
    "async": "launch() always returns at once",
    "cache": "each call of a function runs; only a cell with --cache is not run again where nothing has changed",
}
#: keyword → option of a cell
RESERVED: dict[str, Option] = {
    name.replace("-", "_"): option for name, option in OPTIONS.items() if name not in _OF_CELLS
} | {"send": OPTIONS["in"]}
_OFFERED = sorted(RESERVED)
_LONGEST_VALUE = 20
#: of a function there is one thing to gather: what it returns
_GATHER = Option("gather", "", "the results of all ranks as a list")


def divide_keywords(
    function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any], keywords: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split ``launch``'s keywords into its own and those of ``function`` (``given``: its ``kwargs``, added to these).

    Raises :class:`OptionError` where one could be either: the function has a parameter that is called like an option
    and is not given otherwise.
    """
    own = {key: value for key, value in keywords.items() if key in RESERVED}
    both = sorted(own.keys() & _open_parameters(function, args, given))
    if both:
        key = both[0]
        raise OptionError(
            f"{key}= could be launch's own or a parameter of {getattr(function, '__name__', 'the function')}",
            hint=f"say what the function gets in kwargs={{'{key}': …}}; {key}= beside that is launch's own",
        )
    return own, {key: value for key, value in keywords.items() if key not in RESERVED} | dict(given)


def hint_to_launch(_name: str, key: str, _value: Any) -> str:
    """A hint for a caller who gives ``launch`` a keyword that is neither its own nor the function's."""
    return _OF_CELLS.get(key) or (f"did you mean launch's own {near}=?" if (near := _nearest(key)) else "")


def hint_to_gpu(name: str, key: str, value: Any) -> str:
    """The same for the call of a ``@gpu`` function, whose keywords are all the function's."""
    near = _nearest(key)
    if key in _OF_CELLS or not near:
        return _OF_CELLS.get(key, "")
    text = repr(value)
    given = f"{near}={text if len(text) <= _LONGEST_VALUE else '…'}"
    return f"{near} is an option, no argument: launch({name}, …, {given}), or @gpu({given}) above the function"


def _nearest(key: str) -> str:
    """The option that is called (nearly) like that; empty: none is."""
    return nearest(key, _OFFERED)


def _open_parameters(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> set[str]:
    """Parameters that are not given yet."""
    try:
        signature = inspect.signature(function)
        return set(signature.parameters) - set(signature.bind_partial(*args, **given).arguments)
    except (TypeError, ValueError):  # no signature, or a wrong call: said elsewhere
        return set()


def options_as_text(
    own: Mapping[str, Any], options: Mapping[str, Option] = RESERVED, elsewhere: Mapping[str, str] = _OF_CELLS
) -> Written:
    """Python's values as the options of a cell are written; raises :class:`OptionError` for what is none of them.

    ``elsewhere``: an option of cells that is not among ``options`` → what there is instead.
    """
    written: Written = {}
    for key, value in own.items():
        option = options.get(key)
        if option is None:
            near = nearest(key, options)
            known = f"did you mean {near}=?" if near else f"the options are {', '.join(sorted(options))}"
            raise OptionError(f"{key}=: there is no such option", hint=elsewhere.get(key, known))
        if value is None or (value is False and (option.is_flag or key == "gather")):
            continue
        written[option.name] = _texts(key, option, value)
    return written


def _texts(key: str, option: Option, value: Any) -> list[str]:
    if key == "gather":
        option = _GATHER
    if option.is_flag:
        if value is not True:
            raise OptionError(f"{key}={value!r}: not True or False", hint=f"write {key}=True")
        return [RESULT] if key == "gather" else [""]
    if isinstance(value, Mapping) and option.metavar == "KEY=VALUE":
        return [f"{name}={content}" for name, content in value.items()]
    if isinstance(value, list | tuple | set | frozenset) and option.many:
        texts = [_text(key, option, each) for each in value]
    else:
        texts = [_text(key, option, value)]
    return [f"+{text}" for text in ",".join(texts).split(",")] if key == "send" else texts


def _text(key: str, option: Option, value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds()}s"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise OptionError(
            f"{key}={value!r}: a {type(value).__name__} is no value for it", hint=f"write {key}={option.metavar}"
        )
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
