"""Facts about a cell's names, parsing of a cell, and names that belong to IPython and Python, not to the user."""

from __future__ import annotations
import __future__

import ast
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .reflection import Reflection

#: from source as typed (with ``%magic`` and ``!command``) to Python
Transform = Callable[[str], str]


@dataclass
class CellFacts:
    """Names are top-level names of the notebook.

    ``reads``: read before the cell itself has bound them. ``hints``: perhaps read (bound on some paths only, named
    in the text of a magic, a command or a query). ``annotated``: words of annotations that are texts. ``bound``:
    perhaps bound, ``deleted``: perhaps unbound.
    """

    reads: set[str] = field(default_factory=set)
    hints: set[str] = field(default_factory=set)
    annotated: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    #: top-level packages that the cell cannot do without
    imports: set[str] = field(default_factory=set)
    #: all modules that it imports anywhere, full names
    modules: set[str] = field(default_factory=set)
    #: attribute chains that start at a name (``concurrent.futures.Future``)
    chains: set[str] = field(default_factory=set)
    asks_input: bool = False
    #: joins a process group of its framework
    joins_group: bool = False
    #: installs packages itself (``%pip install``)
    installs: bool = False
    #: what it binds cannot be told from its tree alone (``exec``, ``globals()``)
    opaque: bool = False
    #: what it reaches through its namespace or by text, looked for when ``reflects``
    reflection: Reflection = field(default_factory=Reflection)
    reflects: bool = False
    #: perhaps reads pickles, which name classes and functions
    unpickles: bool = False
    #: names that its tree does not show (``import *``, magics)
    binds_more: bool = False


def transform_of_bodies(shell: Any) -> Transform:
    """The way in which a shell transforms a cell's body, which ``input_transformers_post`` had with the magic."""

    def transform(body: str) -> str:
        own, shell.input_transformers_post = shell.input_transformers_post, []
        try:
            transformed: str = shell.transform_cell(body)
        finally:
            shell.input_transformers_post = own
        return transformed

    return transform if getattr(shell, "input_transformers_post", None) else shell.transform_cell


def parse_cell(body: str, transform: Transform, *, line_offset: int = 0, filename: str = "<cell>") -> ast.Module:
    """Parse and compile the cell (top-level await allowed); raises SyntaxError with line numbers of the whole cell.

    What is Python already is not transformed (that takes longer than all the rest).
    """
    shift = "\n" * line_offset
    with contextlib.suppress(SyntaxError):
        return _compiled(shift + body, filename)
    return _compiled(shift + transform(body), filename)


def _compiled(source: str, filename: str) -> ast.Module:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.Module = compile(source, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    compile(tree, filename, "exec", flags, dont_inherit=True)  # finds a `return` outside of a function
    return tree


def postpones_annotations(compiler_flags: int) -> bool:
    """Tell if a shell's compiler makes texts of annotations."""
    return bool(compiler_flags & __future__.annotations.compiler_flag)


_OWN = frozenset(
    {
        "_ih",
        "_oh",
        "_dh",
        "__name__",
        "__doc__",
        "__package__",
        "__loader__",
        "__spec__",
        "__builtin__",
        "__builtins__",
        "__annotations__",
        "__conditional_annotations__",
        "__warningregistry__",
    }
)
_LATEST = re.compile(r"_{1,3}|_\d+|_i{1,3}|_i\d+")
#: set by ``!command``: it goes home, and is no result
EXIT_CODE = "_exit_code"
#: the history objects, which hold the whole session
HISTORY = frozenset({"In", "Out", "_ih", "_oh"})
#: names of IPython's that one may take for oneself: those of the history are the same objects under its own names
_HISTORY_NAMES = {"In": "_ih", "Out": "_oh"}
_FUNCTIONS = frozenset({"exit", "quit", "get_ipython"})


def is_machinery(name: str, names: Mapping[str, Any]) -> bool:
    """Tell if ``name`` is IPython's or Python's own, by what it holds in a namespace."""
    if name in _OWN:
        return True
    if name in _HISTORY_NAMES:
        return name in names and names[name] is names.get(_HISTORY_NAMES[name])
    if name in _FUNCTIONS:
        value = names.get(name)
        return any(str(getattr(each, "__module__", "")).startswith("IPython") for each in (value, type(value)))
    return False


def cells_of(names: Mapping[str, Any]) -> Sequence[str]:
    """The notebook's executed cells, by number; ``In``, under the name that nobody takes for himself."""
    return names.get("_ih") or []


def is_latest(name: str) -> bool:
    """``_``, ``__``, ``_12``, ``_i``, ``_i12``: sent when the cell reads them, never returned."""
    return _LATEST.fullmatch(name) is not None
