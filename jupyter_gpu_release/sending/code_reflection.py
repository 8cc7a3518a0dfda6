"""What a notebook's function looks up by text, from its source; where there is none, from its compiled code."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import weakref
from collections.abc import Iterator

from ..core.reflection import WORDS, Reflection, reflection_in

_CERTAIN = WORDS - {"modules", "query", "eval", "dir", "vars", "__subclasses__"}
_known: weakref.WeakKeyDictionary[types.CodeType, Reflection] = weakref.WeakKeyDictionary()


def reflection_of(function: types.FunctionType) -> Reflection:
    """Look through the function, those in it included; cheap for all that do nothing of the kind."""
    code = function.__code__
    words = WORDS & _words(code)
    if not words:
        return Reflection()
    if code not in _known:
        _known[code] = _from_source(code) or _from_code(code, words)
    return _known[code]


def _words(code: types.CodeType) -> set[str]:
    return {name for each in _codes(code) for name in each.co_names}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _from_source(code: types.CodeType) -> Reflection | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError, ValueError, IndexError):  # a lambda in the middle of a line; no source
        return None
    return reflection_in(tree, top_level=False)


def _from_code(code: types.CodeType, words: frozenset[str]) -> Reflection:
    texts = {constant for each in _codes(code) for constant in each.co_consts if isinstance(constant, str)}
    names = {text for text in texts if text.isidentifier()}
    return Reflection(names, any_name=bool(words & _CERTAIN), all_classes="__subclasses__" in words)
