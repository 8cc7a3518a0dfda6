"""One call of one function, checked before anything is sent."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import CannotSendError, WrongCallError

#: the name under which a run keeps what its function returned
RESULT = "result"
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
        """What people call the function."""
        named = _innermost(self.function)
        return str(getattr(named, "__name__", None) or type(named).__name__)

    @property
    def statement(self) -> str:
        """What the rank executes; the values stand for themselves under names of ours."""
        given = [self._argument(number) for number in range(len(self.args))]
        given += [f"**{{{key!r}: {self._argument(number)}}}" for number, key in enumerate(self.kwargs, len(self.args))]
        wait = "await " if inspect.iscoroutinefunction(_innermost(self.function)) else ""
        return f"{RESULT} = {wait}{_FUNCTION}({', '.join(given)})"

    @property
    def values(self) -> dict[str, Any]:
        """What is sent for the call itself, by name in the rank."""
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
                mend="name the function and its arguments: launch(train, data), not launch(train(data))",
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise CannotSendError(
                f"cannot launch {self.name}: it yields values one by one, and a generator cannot leave its process",
                mend="return a list of the values, or publish() them while it runs",
            )

    def _check_arguments(self) -> None:
        """As the call itself would: a wrong call is wrong here, not after queueing."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # a function of an extension module need not have one
            return
        try:
            signature.bind(*self.args, **self.kwargs)
        except TypeError as error:
            unknown = [item for item in self.kwargs.items() if item[0] not in signature.parameters]
            hints = filter(None, (self.hint(self.name, *item) for item in unknown))
            raise WrongCallError(f"{self.name}() {error}", mend=next(hints, "")) from None


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
