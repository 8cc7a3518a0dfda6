"""Names that code reaches by text: globals(), eval, subclasses.

Where the name is written out it is known; elsewhere any name may be meant.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: calls and attributes that make a closer look worth while
CALLS = frozenset({"globals", "locals", "vars", "dir", "eval", "exec", "testmod", "unittest.main", "ipytest.run"})
ATTRIBUTES = frozenset({"user_ns", "user_global_ns", "f_globals", "modules", "import_module", "__main__"}) | frozenset(
    {"__subclasses__", "query", "eval", "ev", "ex", "run_line_magic", "testmod"}
)
#: methods that find what a pickle names
UNPICKLERS = frozenset({"load", "loads", "read_pickle"})
#: all of these, in a function's compiled code
WORDS = CALLS | ATTRIBUTES | UNPICKLERS
_NAMESPACES = frozenset({"user_ns", "user_global_ns", "f_globals"})
_READERS = frozenset({"get", "pop", "setdefault", "__getitem__", "__contains__"})
_WRITERS = frozenset({"update", "__setitem__"})
_OF_HERE = frozenset({"locals", "vars", "dir"})
_RUNS_TEXT = frozenset({"eval", "exec"})
_QUERY_NAME = re.compile(r"@([A-Za-z_]\w*)")
#: ``y ~ np.log(x)``: patsy and its like look names up in the frame of the caller
_FORMULA = re.compile(r"(?:^|[\w)\]])\s*~\s*[\w(]")
#: tables of SQL that are names of Python (DuckDB, polars)
_SQL = re.compile(r"\bselect\b", re.IGNORECASE)
_TABLE = re.compile(r"\b(?:from|join)\s+([A-Za-z_]\w*)", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_]\w*")
#: ``setup="from __main__ import f, x"`` (timeit), ``"__main__.Tests.test_a"`` (unittest, logging)
_IMPORTED = re.compile(r"from\s+__main__\s+import\s+([\w ,]+)")
_DOTTED = re.compile(r"\b__main__\.(\w+)")
#: libraries that read pickles (numpy if it is told to), which look classes and functions up in ``__main__``
_UNPICKLING = frozenset({"pickle", "cloudpickle", "dill", "joblib", "torch", "pd", "pandas"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass
class Reflection:
    """``names``: written out. ``texts``, ``queries``: names that hold the text of code, or of a query of a table.
    ``any_name``: more may be meant.
    """

    names: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    queries: set[str] = field(default_factory=set)
    any_name: bool = False
    #: all classes of the notebook: who asks for subclasses finds those that are there
    all_classes: bool = False
    #: a class or function of the notebook may be looked up by its name, by what reads a pickle
    definitions: bool = False

    def add(self, other: Reflection) -> None:
        """Take over all of ``other``."""
        self.names |= other.names
        self.texts |= other.texts
        self.queries |= other.queries
        self.any_name |= other.any_name
        self.all_classes |= other.all_classes
        self.definitions |= other.definitions


def reflection_in(tree: ast.AST, *, top_level: bool = True) -> Reflection:
    """Look through a cell, or (not ``top_level``) a function."""
    looker = _ReflectionVisitor(top_level)
    looker.visit(tree)
    return looker.found


def reflection_in_text(text: str) -> Reflection:
    """A text that is run as code."""
    found = reflection_in_query(text)
    try:
        tree = ast.parse(_QUERY_NAME.sub(r"\1", text).strip())
    except (SyntaxError, ValueError):
        return found
    found.names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    found.add(reflection_in(tree))
    return found


def reflection_in_query(text: str) -> Reflection:
    """The text of a query: names outside of the table are marked in it."""
    return Reflection(names=set(_QUERY_NAME.findall(text)))


def names_in_annotation(annotation: Any) -> Iterator[str]:
    """Names in the texts of an annotation: ``"Node"``, ``list["Node"]``."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    if isinstance(text, str):
        yield from _WORD.findall(text)
    elif type(annotation) is not type:
        arguments = getattr(annotation, "__args__", ())
        for part in arguments if isinstance(arguments, tuple) else ():
            yield from names_in_annotation(part)


def names_in_frame_text(text: str) -> set[str]:
    """Names that a library looks up where it is called: of a formula all words, of SQL the tables; in ``__main__``."""
    if "__main__" in text:
        return set(_WORD.findall(" ".join(_IMPORTED.findall(text)))) | set(_DOTTED.findall(text))
    if _FORMULA.search(text):
        return set(_WORD.findall(text))
    return set(_TABLE.findall(text)) if _SQL.search(text) else set()


def frame_texts(call: ast.Call) -> set[str]:
    """Such names in the texts that a call is given; of ``evaluate`` (numexpr) those of the expression."""
    found: set[str] = set()
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        for part in ast.walk(given):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                found |= names_in_frame_text(part.value)
    match call:
        case ast.Call(func=ast.Attribute(attr="evaluate"), args=[ast.Constant(value=str(text)), *_]):
            found |= set(_WORD.findall(text))
    return found


class _ReflectionVisitor(ast.NodeVisitor):
    def __init__(self, top_level: bool) -> None:
        self.found = Reflection()
        self._above: list[ast.AST] = []
        self._is_top = top_level

    def visit(self, node: ast.AST) -> None:
        kept = self._is_top
        self._is_top = kept and not isinstance(node, (*_FUNCTIONS, ast.ClassDef))
        if isinstance(node, ast.Call):
            self._call(node)
        if self._is_namespace(node):
            self._looked_up_in(node)
        elif self._is_main(node):
            self._attribute_of(node)
        self._above.append(node)
        self.generic_visit(node)
        self._above.pop()
        self._is_top = kept

    # ------------------------------------------------------------------------------- what it is
    def _is_namespace(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="globals")):
                return True
            case ast.Call(func=ast.Name(id=name), args=[], keywords=[]) if name in _OF_HERE:
                return self._is_top
            case ast.Call(func=ast.Name(id="vars"), args=[module]):
                return self._is_main(module)
            case ast.Attribute(attr="__dict__", value=module):
                return self._is_main(module)
            case ast.Attribute(attr=attribute):
                return attribute in _NAMESPACES
        return False

    @staticmethod
    def _is_main(node: ast.AST) -> bool:
        match node:
            case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(value="__main__")):
                return True
            case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Name(id="__name__")):
                return True
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value="__main__")]):
                return True
        return isinstance(node, ast.Name) and node.id == "__main__"

    # ------------------------------------------------------------------------------- what for
    def _looked_up_in(self, node: ast.AST) -> None:
        """``node`` is a namespace: what is around it says which name is meant."""
        parent = self._above[-1] if self._above else None
        match parent:
            case ast.Subscript(value=value, slice=key, ctx=context) if value is node:
                if not isinstance(context, ast.Store) or self._is_augmented(parent):
                    self._key(key)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()]):
                self._key(key)
            case ast.Attribute(value=value, attr=method) if value is node and self._is_called(parent):
                arguments = self._above[-2].args  # type: ignore[attr-defined]
                if method in _READERS and arguments:
                    self._key(arguments[0])
                elif method not in _WRITERS:
                    self.found.any_name = True
            case ast.Call(func=ast.Name(id="eval" | "exec"), args=[_, *spaces]) if node in spaces:
                pass  # as without it
            case ast.Expr() if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dir"):
                pass
            case _:
                self.found.any_name = True

    def _attribute_of(self, node: ast.AST) -> None:
        """``node`` is the notebook's module."""
        parent = self._above[-1] if self._above else None
        match parent:
            case ast.Attribute(attr=name, ctx=ast.Load()):
                self.found.names.add(name)
            case ast.Attribute() | ast.Expr():
                pass
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, key, *_]):
                self._key(key)
            case ast.Call(func=ast.Name(id="setattr" | "vars")):
                pass
            case _:
                self.found.any_name = True

    def _is_called(self, node: ast.AST) -> bool:
        above = self._above[-2] if len(self._above) > 1 else None
        return isinstance(above, ast.Call) and above.func is node

    def _is_augmented(self, node: ast.AST) -> bool:
        above = self._above[-2] if len(self._above) > 1 else None
        return isinstance(above, ast.AugAssign) and above.target is node

    def _key(self, key: ast.AST) -> None:
        if isinstance(key, ast.Constant):
            self.found.names |= {key.value} if isinstance(key.value, str) else set()
        else:
            self.found.any_name = True

    # ------------------------------------------------------------------------------- calls
    def _call(self, call: ast.Call) -> None:
        self.found.names |= frame_texts(call)
        match call:
            case ast.Call(func=ast.Name(id=name), args=[text, *spaces]) if name in _RUNS_TEXT:
                if not spaces or self._is_namespace(spaces[0]):  # else it finds names elsewhere
                    self._text(text)
            case ast.Call(func=ast.Name(id="testmod") | ast.Attribute(attr="testmod"), args=[]):
                self.found.any_name = True
            case ast.Call(func=ast.Attribute(value=ast.Name(id="unittest"), attr="main"), args=[]):
                self.found.any_name = True
            case ast.Call(func=ast.Attribute(value=ast.Name(id="ipytest"), attr="run")):
                self.found.any_name = True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=library), attr=word)) if word in UNPICKLERS:
                allows = any(keyword.arg in ("allow_pickle", None) for keyword in call.keywords)
                self.found.definitions |= allows or library in _UNPICKLING
            case ast.Call(func=ast.Attribute(attr="__subclasses__"), args=[]):
                self.found.all_classes = True
            case ast.Call(func=ast.Attribute(attr="ev" | "ex" | "run_cell" | "eval"), args=[text, *_]):
                self._text(text)
            case ast.Call(func=ast.Attribute(attr="query"), args=[text, *_]):
                self._query(text)
            case ast.Call(
                func=ast.Attribute(attr="run_line_magic"), args=[ast.Constant("run"), ast.Constant(str(line))]
            ):
                self.found.any_name |= "-i" in str(line).split()  # the script sees the notebook's names

    def _text(self, text: ast.AST) -> None:
        match text:
            case ast.Constant(value=str(written)):
                self.found.add(reflection_in_text(written))
            case ast.Constant():
                pass
            case ast.Name(id=name):
                self.found.texts.add(name)
            case ast.Call(func=ast.Name(id="compile"), args=[inner, *_]):
                self._text(inner)
            case _:
                self.found.any_name = True

    def _query(self, text: ast.AST) -> None:
        if isinstance(text, ast.Name):
            self.found.queries.add(text.id)
        for part in ast.walk(text):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                self.found.add(reflection_in_query(part.value))


_CERTAIN = WORDS - UNPICKLERS - {"modules", "query", "eval", "dir", "vars", "__subclasses__", "run_line_magic"}
_known: weakref.WeakKeyDictionary[types.CodeType, Reflection] = weakref.WeakKeyDictionary()


def reflection_of(function: types.FunctionType) -> Reflection:
    """Look through the function, those in it included; cheap for all that do nothing of the kind."""
    code = function.__code__
    words = WORDS & _words(code)
    if code not in _known:
        found = _from_source(code) or _from_code(code, words) if words else Reflection()
        found.names |= names_in_texts_of(code)
        _known[code] = found
    return _known[code]


def names_in_texts_of(code: types.CodeType) -> set[str]:
    """Names in formulas and in SQL that a function has."""
    texts = (constant for each in _codes(code) for constant in each.co_consts if isinstance(constant, str))
    return {name for text in texts for name in names_in_frame_text(text)}


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
    found = Reflection(names, any_name=bool(words & _CERTAIN), all_classes="__subclasses__" in words)
    found.definitions = bool(words & UNPICKLERS and words & _UNPICKLING)
    return found
