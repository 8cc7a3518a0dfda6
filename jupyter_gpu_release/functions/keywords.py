"""Which keywords of ``launch`` are its own, and which the function's."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from ..core.options import OPTIONS, Option, Written
from ..errors import OptionError
from .call import RESULT

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
_OFFERED = sorted(key for key, option in RESERVED.items() if option.built)
_LONGEST_VALUE = 20
#: of a function there is one thing to gather: what it returns
_GATHER = Option("gather", "", "the results of all ranks as a list")


def divide(
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
            mend=f"say what the function gets in kwargs={{'{key}': …}}; {key}= beside that is launch's own",
        )
    return own, {key: value for key, value in keywords.items() if key not in RESERVED} | dict(given)


def hint_to_launch(_name: str, key: str, _value: Any) -> str:
    """What helps who gives ``launch`` a keyword that is neither its own nor the function's."""
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
    return key if key in _OFFERED else next(iter(difflib.get_close_matches(key, _OFFERED, n=1)), "")


def _open_parameters(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> set[str]:
    """Parameters that are not given yet."""
    try:
        signature = inspect.signature(function)
        return set(signature.parameters) - set(signature.bind_partial(*args, **given).arguments)
    except (TypeError, ValueError):  # no signature, or a wrong call: said elsewhere
        return set()


def as_written(own: Mapping[str, Any]) -> Written:
    """Python's values as the options of a cell are written; raises :class:`OptionError` for what is none of them."""
    written: Written = {}
    for key, value in own.items():
        option = RESERVED.get(key)
        if option is None:
            near = _nearest(key)
            known = f"did you mean {near}=?" if near else f"the options are {', '.join(_OFFERED)}"
            raise OptionError(f"{key}=: there is no such option", mend=_OF_CELLS.get(key, known))
        if value is None or (value is False and (option.is_flag or key == "gather")):
            continue
        written[option.name] = _texts(key, option, value)
    return written


def _texts(key: str, option: Option, value: Any) -> list[str]:
    if key == "gather":
        option = _GATHER
    if option.is_flag:
        if value is not True:
            raise OptionError(f"{key}={value!r}: not True or False", mend=f"write {key}=True")
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
            f"{key}={value!r}: a {type(value).__name__} is no value for it", mend=f"write {key}={option.metavar}"
        )
    return f"{value:f}" if isinstance(value, float) else str(value)
