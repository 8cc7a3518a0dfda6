"""Exceptions kept as values: by class, arguments and attributes. Pickle would call the class with ``args``, which fails
for every class whose ``__init__`` takes something else.
"""

from __future__ import annotations

import copyreg
import types
from typing import Any


def lookup(kind: type[BaseException]) -> Any:
    """The reducer for an exception class, None if the class (or a base of it) says itself how to pickle it."""
    own = not isinstance(kind.__reduce__, types.MethodDescriptorType) or kind.__reduce_ex__ is not object.__reduce_ex__
    return None if own or kind in copyreg.dispatch_table else reduce_exception


def reduce_exception(pickler: Any, error: BaseException) -> Any:
    """Without its traceback (frames belong to their process); causes stay behind when they cannot travel."""
    kind = type(error)
    reduced: Any = error.__reduce__()
    if reduced[0] is not kind:
        return NotImplemented
    linked = [_travels(pickler, part) for part in (error.__cause__, error.__context__)]
    state = (error.args, dict(vars(error)), *linked, error.__suppress_context__)
    return make_exception, (kind, reduced[1]), state, None, None, set_exception


def _travels(pickler: Any, error: BaseException | None) -> BaseException | None:
    if error is None or pickler.nested or pickler.digest_of(error) is not None:
        return error
    return None


def make_exception(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """As Python's own part of the class makes it (``OSError`` reads its ``errno`` from the arguments)."""
    base: Any = next(part for part in kind.__mro__ if part.__module__ == "builtins")
    made: BaseException = base.__new__(kind, *arguments)
    base.__init__(made, *arguments)
    return made


def set_exception(error: BaseException, state: tuple[Any, ...]) -> None:
    """The rest, once the exception is known to the stream."""
    error.args, attributes, error.__cause__, error.__context__, error.__suppress_context__ = state
    vars(error).update(attributes)
