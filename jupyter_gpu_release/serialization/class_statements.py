"""Classes that a library completes when they are made: they are made by their own statement.

A metaclass or ``__init_subclass__`` of a library (Equinox, msgspec, SQLAlchemy, ctypes …) may keep more of a class than
attributes say: a registry, a layout in C. Only the ``class`` statement of the notebook makes such a class again.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import collections
import contextlib
import copy
import dis
import functools
import inspect
import io
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .load_order import global_reads, reads_while_rebuilt

#: file name and text of executed cells, the newest first
Cells = Callable[[], Iterable[tuple[str, str]]]
#: what these do, attributes say
_OF_PYTHON = ("builtins", "abc", "enum", "typing", "typing_extensions", "collections.abc", "dataclasses")
_NOTEBOOK = "__main__"
_ANNOTATIONS = __future__.annotations.compiler_flag
_SETS_ATTRIBUTE = re.compile(r"\.(\w+)\s*(?:[-+*/%@&|^]|//|\*\*|<<|>>)?=(?!=)")
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")

_found: weakref.WeakKeyDictionary[type, types.CodeType | None] = weakref.WeakKeyDictionary()


def is_completed_by_library(cls: type) -> bool:
    """Tell if code of a library runs when the class is made."""
    makers = [part.__module__ for part in type(cls).mro(type(cls))]
    hooks = [base.__module__ for base in cls.__mro__[1:] if "__init_subclass__" in vars(base)]
    return any(module not in (*_OF_PYTHON, _NOTEBOOK) for module in (*makers, *hooks))


def statement_of(cls: type, cells: Cells, namespace: dict[str, Any]) -> types.CodeType | None:
    """The compiled statement that made the class, if it stands by itself in a cell."""
    if cls not in _found:
        _found[cls] = _find(cls, cells, namespace)
    return _found[cls]


def remember_statement(cls: type, code: types.CodeType) -> None:
    """``cls`` was made by this statement."""
    _found[cls] = code


def run_statement(code: types.CodeType, name: str, namespace: dict[str, Any]) -> Any:
    """Make the class (bound to its own name or another one). The namespace stays as it is, and so do the containers
    that the statement may fill; what it prints was printed before.
    """
    made: dict[str, Any] = {}
    held = [namespace[each] for each in names_read(code, namespace) if type(namespace[each]) in _FILLED]
    before = [copy.copy(each) for each in held]
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, namespace, made)
    for each, was in zip(held, before, strict=True):
        each.clear()
        (each.update if hasattr(each, "update") else each.extend)(was)
    return made[name] if name in made else next(iter(made.values()))


def _find(cls: type, cells: Cells, namespace: dict[str, Any]) -> types.CodeType | None:
    texts = dict(cells())
    if cls.__module__ != _NOTEBOOK:
        return _find_call(cls, texts, namespace)
    if cls.__qualname__ != cls.__name__:
        return None
    own = {
        value.__code__.co_filename for value in vars(cls).values() if type(value) is types.FunctionType
    } & texts.keys()
    if not own and dict.get(namespace, cls.__name__) is not cls:
        return None
    for filename, text in texts.items():
        node = _last_statement(text, cls.__name__) if not own or filename in own else None
        if node is not None:
            flags = _ANNOTATIONS if _has_texts(cls) else 0
            code: types.CodeType = compile(ast.Module([node], []), filename, "exec", flags, dont_inherit=True)
            return code
    return None


def _find_call(cls: type, texts: Mapping[str, str], namespace: dict[str, Any]) -> types.CodeType | None:
    """The statement that had a library make the class: ``Base = declarative_base()``."""
    names = [name for name, value in list(dict.items(namespace)) if value is cls and not name.startswith("_")]
    for filename, text in texts.items() if names else ():
        for node in reversed(list(_statements(_parsed(text)))):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Name) and target.id in names:
                    code: types.CodeType = compile(ast.Module([node], []), filename, "exec", dont_inherit=True)
                    return code
    return None


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):  # a magic of IPython in it
        return ast.Module([], [])


def _last_statement(text: str, name: str) -> ast.ClassDef | None:
    if f"class {name}" not in text:
        return None
    found = [node for node in _statements(_parsed(text)) if isinstance(node, ast.ClassDef) and node.name == name]
    return found[-1] if found else None


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _statements(child)


def _has_texts(cls: type) -> bool:
    found = list(vars(cls).get("__annotations__", {}).values())
    return bool(found) and all(type(each) is str for each in found)


def names_read(code: types.CodeType, namespace: dict[str, Any]) -> dict[str, None]:
    """Names of the namespace that the statement reads, and that functions and classes of the notebook read in it."""
    found: dict[str, None] = {}
    waiting = list(_read_by(code))
    while waiting:
        name = waiting.pop()
        if name in found or name not in namespace:
            continue
        found[name] = None
        value = dict.get(namespace, name)
        if type(value) is types.FunctionType and value.__globals__ is namespace:
            waiting += global_reads(value.__code__)
        elif isinstance(value, type) and value.__module__ == _NOTEBOOK:
            waiting += reads_while_rebuilt(value, namespace)
    return found


def lacks_names(code: types.CodeType, namespace: dict[str, Any]) -> bool:
    """Tell if the statement could not run here any more: a name that it reads is gone."""
    own = {step.argval for each in _codes(code) for step in dis.get_instructions(each) if step.opname == "STORE_NAME"}
    return any(
        name not in namespace and not hasattr(builtins, name) and name not in own and not name.startswith("__")
        for name in _read_by(code)
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The statement's code and that of class bodies in it, which run with it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType) and (not each.co_flags & inspect.CO_NEWLOCALS or each.co_name in _INLINE):
            yield from _codes(each)


def _read_by(code: types.CodeType) -> Iterator[str]:
    for each in _codes(code):
        for step in dis.get_instructions(each):
            if step.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"):
                yield str(step.argval)


def read_later(code: types.CodeType, namespace: dict[str, Any]) -> dict[str, None]:
    """Names of the namespace that the class's functions read, also those that a library has wrapped."""
    return {name: None for name in global_reads(code) if name in namespace}


_CONTAINERS = (list, dict, set, tuple, frozenset)
_DATA = (str, int, float, complex, bool, bytes, type(None), *_CONTAINERS)
_FILLED = (list, dict, set, collections.deque, collections.Counter, collections.OrderedDict, collections.defaultdict)


def own_attributes(
    cls: type, code: types.CodeType, cells: Cells, namespace: dict[str, Any], can_send: Callable[[Any], bool]
) -> dict[str, Any]:
    """Attributes that are the notebook's own: its functions, plain values of which the library need not know, and other
    data that the class's body binds, or that a cell sets.
    """
    body = (each for each in _codes(code) if each.co_name == cls.__name__)
    named = {str(step.argval) for each in body for step in dis.get_instructions(each) if step.opname == "STORE_NAME"}
    for _, text in cells():
        named |= _attributes_set(text)
    makers = {kind.__module__.partition(".")[0] for kind in type(cls).mro(type(cls))} - {_NOTEBOOK, "builtins"}
    return {
        name: value
        for name, value in list(vars(cls).items())  # pickling notes something there
        if _is_own(name, value, namespace, can_send)
        or (name in named and not _is_special(name) and _is_data(value, makers) and can_send(value))
    }


@functools.lru_cache(1000)
def _attributes_set(text: str) -> frozenset[str]:
    return frozenset(_SETS_ATTRIBUTE.findall(text))


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_data(value: Any, makers: set[str]) -> bool:
    """Tell if a value is neither a function nor, but for arrays, what the metaclass's library may keep account of."""
    kind = type(value)
    is_theirs = kind.__module__.partition(".")[0] in makers
    return not hasattr(kind, "__get__") and (hasattr(kind, "__array__") or not is_theirs)


def _is_own(name: str, value: Any, namespace: dict[str, Any], can_send: Callable[[Any], bool]) -> bool:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if type(value) is property:
        parts = [part for part in (value.fget, value.fset, value.fdel) if part is not None]
        return all(_is_own("", part, namespace, can_send) for part in parts)
    if type(value) is types.FunctionType:
        return value.__globals__ is namespace
    if _is_special(name):
        return False
    return type(value) in _DATA and (type(value) not in _CONTAINERS or can_send(value))


def set_own_attributes(cls: type, attributes: dict[str, Any]) -> None:
    """Set what the notebook has changed since, and leave what the statement has made just so."""
    for name, value in attributes.items():
        if name not in vars(cls) or not _is_same(vars(cls)[name], value):
            setattr(cls, name, value)


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other) or type(one) not in _DATA:
        return False
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - comparisons of what is in it
        return False
