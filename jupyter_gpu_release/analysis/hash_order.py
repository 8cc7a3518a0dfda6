"""Finds code that depends on its process: on the hashes of texts (``hash()``, a set's own order), or on ``id()``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

#: a closer look is worth while
SUSPECT = re.compile(r"\bhash\b|set\b|[{|&^]|\.(?:union|intersection|difference|symmetric_difference)\b")
_SETS = frozenset({"set", "frozenset"})
_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_OPERATORS = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
#: what keeps the order of what it goes through (``sorted``, ``len``, ``sum`` and the like do not tell it)
_WALKS = frozenset({"list", "tuple", "enumerate", "iter", "zip", "map", "filter", "fromkeys", "join", "Series"})

_BY_KEY = frozenset({"get", "setdefault", "pop", "add", "discard", "remove", "append", "index"})


def depends_on_hashes(tree: ast.AST, is_set: Callable[[str], bool]) -> str:
    """Say what in ``tree`` depends on hashes; empty: nothing is seen. ``is_set``: whether a name holds a set."""
    own = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_set(node.value, is_set)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def known(name: str) -> bool:
        return name in own or is_set(name)

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash":
            return "hash()"
        if any(_is_set(walked, known) for walked in _walked(node)):
            return "the order of a set"
    return ""


def finds_by_id(tree: ast.AST) -> bool:
    """Tell if the code finds something again by its ``id()``: as a key, or as a member of a container."""
    return any(_is_id(key) for node in ast.walk(tree) for key in _keys(node))


def _keys(node: ast.AST) -> list[ast.expr | None]:
    match node:
        case ast.Subscript(slice=key) | ast.DictComp(key=key) | ast.SetComp(elt=key):
            return [key]
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()]):
            return [key]
        case ast.Dict(keys=keys) | ast.Set(elts=keys):
            return [*keys]
        case ast.Call(func=ast.Attribute(attr=method), args=[key, *_]) if method in _BY_KEY:
            return [key]
    return []


def _is_id(node: ast.expr | None) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="id")):
            return True
        case ast.Tuple(elts=parts):
            return any(map(_is_id, parts))
    return False


def walked_names(tree: ast.AST) -> set[str]:
    """Names whose values the code goes through in their own order."""
    return {walked.id for node in ast.walk(tree) for walked in _walked(node) if isinstance(walked, ast.Name)}


def _walked(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.For(iter=walked) | ast.comprehension(iter=walked) | ast.Starred(value=walked):
            return [walked]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments) if name in _WALKS:
            return arguments
        case ast.Call(func=ast.Attribute(value=popped, attr="pop"), args=[]):
            return [popped]
    return []


def _is_set(node: ast.expr, known: Callable[[str], bool]) -> bool:
    match node:
        case ast.Name(id=name):
            return known(name)
        case ast.Set(elts=elements):
            return not all(isinstance(part, ast.Constant) and isinstance(part.value, (int, float)) for part in elements)
        case ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in _SETS
        case ast.Call(func=ast.Attribute(value=owner, attr=method)):
            return method in _METHODS and _is_set(owner, known)
        case ast.BinOp(left=left, op=operator, right=right):
            return isinstance(operator, _OPERATORS) and (_is_set(left, known) or _is_set(right, known))
    return False
