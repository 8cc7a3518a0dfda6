"""Code of functions. One minor version of Python cannot run another's bytecode: it dies of it, or computes nonsense.

What arrives so is a stand-in, which says why when it is called, and is itself again where it came from.
"""

from __future__ import annotations

import sys
import types
from typing import Any, NamedTuple

from cloudpickle import cloudpickle

from ... import streams

_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
#: arguments of ``types.CodeType`` that stand before these
_FILE_NAME, _NAME, _QUALIFIED_NAME, _FIRST_LINE, _FREE = 10, 11, 12, 13, 16


class _Original(NamedTuple):
    """The last constant of a stand-in: what it stands for."""

    python: str
    arguments: tuple[Any, ...]


def reduce_code(_pickler: Any, code: types.CodeType) -> Any:
    """Keeps the file's name (cloudpickle 3.1.3 drops it): tracebacks and ``inspect`` find the cell's text by it."""
    if code.co_consts and isinstance(original := code.co_consts[-1], _Original):
        return make_code, (original.python, *original.arguments)
    _, arguments = cloudpickle._code_reduce(code)
    own_copy = "".join(code.co_filename)  # shared with another string or not: the same bytes
    return make_code, (_HERE, *arguments[:_FILE_NAME], own_copy, *arguments[_FILE_NAME + 1 :])


@streams.named
def make_code(python: str, *arguments: Any) -> types.CodeType:
    """Code that Python ``python`` has compiled; elsewhere a stand-in."""
    if python == _HERE:
        return types.CodeType(*arguments)
    name = arguments[_QUALIFIED_NAME]
    said = f"{name} was made by Python {python}, and this process has {_HERE}: functions do not run in another Python"
    hint = f"define {name} here, too, or use a kernel with the cluster's Python; data can be used in both"
    text = "def stand_in(*_, **__): from jupyter_gpu_release.errors import MissingHereError as e; "
    module = compile(f"{text}raise e({said!r}, hint={hint!r})", arguments[_FILE_NAME], "exec")
    code = next(each for each in module.co_consts if isinstance(each, types.CodeType))
    return code.replace(
        co_name=arguments[_NAME],
        co_qualname=name,
        co_firstlineno=arguments[_FIRST_LINE],
        co_consts=(*code.co_consts, _Original(python, arguments)),
        co_freevars=arguments[_FREE],  # a function's closure has to fit
    )
