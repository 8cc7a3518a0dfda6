"""Attributes that executed cells set in libraries: ``ssl._create_default_https_context = …``, ``np.float = float``.

They are a module's, a class's, or those of an object that a module has (``pio.templates.default = …``). Modules of the
notebook's own are looked at as a whole; a library only where a cell says that it sets something.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..adapters.registry import adapter_of, loaded_adapters
from ..analysis.scopes import dotted_name
from ..serialization.process_state.local_modules import extensions_of_libraries, function_of, name_in

#: cells that may hold such an assignment
_SUSPECT = re.compile(r"(?:^|[;:])\s*\w+(?:\.\w+)+\s*(?:[-+*/|&]|//|\*\*)?=(?!=)", re.MULTILINE)
_ABSENT = object()
#: objects of these modules' classes are everywhere
_NO_LIBRARIES = ("__main__", "builtins")
_LOADS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF")
_WITH_FUNCTIONS = frozenset({types.FunctionType, staticmethod, classmethod, property, functools.cached_property})
#: parts of syntax that hand nothing to anybody: bases of classes, annotations
_ONLY_NAMED = frozenset({"bases", "annotation", "returns"})
#: never a method
_LITERALS = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict)
#: each process has its own
_OF_THE_PROCESS = frozenset(
    {
        "sys.stdout",
        "sys.stderr",
        "sys.stdin",
        "sys.path",
        "sys.modules",
        "sys.displayhook",
        "sys.excepthook",
        "os.environ",
    }
)


def assigned_attributes(tree: ast.AST) -> dict[str, ast.AST | None]:
    """Chains such as ``np.float`` to which code assigns outside of its functions, with what it assigns."""
    return {
        chain: value
        for target, value in _assignments(tree)
        if isinstance(target, ast.Attribute) and (chain := dotted_name(target))
    }


def _assignments(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign):
            yield from ((target, child.value) for target in child.targets)
        elif isinstance(child, ast.AugAssign | ast.AnnAssign):
            yield child.target, child.value
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            yield from _assignments(child)


def _called(node: ast.AST) -> Iterator[str]:
    """Names that code calls outside of its functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
            yield child.func.id
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _called(child)


@functools.cache
def stored_attributes(code: types.CodeType) -> frozenset[str]:
    """Chains to which compiled code assigns, that of the functions in it included."""
    chain = copied = ""
    found: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname == "STORE_ATTR":
            found |= {f"{base}.{step.argval}" for base in (chain or copied,) if base}
        if step.opname == "COPY":  # of `module.number += 1`
            copied = chain
        elif step.opname.startswith(_LOADS) or step.opname.endswith("LOAD_FAST"):
            chain = step.argval if isinstance(step.argval, str) else step.argval[-1]  # several at once: the last
        else:
            chain = f"{chain}.{step.argval}" if chain and step.opname == "LOAD_ATTR" else ""
    return frozenset(found).union(
        *(stored_attributes(each) for each in code.co_consts if isinstance(each, types.CodeType))
    )


def codes_of(names: dict[str, Any]) -> Iterator[types.CodeType]:
    """Codes of the notebook's functions and methods that these names hold."""
    for value in list(dict.values(names)):
        if isinstance(value, types.FunctionType | type) and value.__module__ == "__main__":
            parts = vars(value).values() if isinstance(value, type) else [value]
            yield from (part.__code__ for part in parts if isinstance(part, types.FunctionType))


def values_at(chains: Iterable[str], names: dict[str, Any]) -> dict[str, Any]:
    """Values that libraries have there now, by the names under which they travel; ``names`` are those of the code."""
    return dict(place for place in (_place(chain, names) for chain in chains) if place is not None)


class UnreadCells:
    """The notebook's history, each cell once."""

    def __init__(self, cells: Callable[[], Sequence[str]]) -> None:
        self._cells = cells
        self._read = 0

    def take(self) -> Sequence[str]:
        """The cells since the last call."""
        cells = self._cells()
        new = cells[self._read :] if len(cells) >= self._read else cells  # the history was reset
        self._read = len(cells)
        return new


class LibraryPatches:
    """Reads the history of ``cells`` once, as it grows; ``names`` are what they have bound."""

    def __init__(self, names: dict[str, Any], cells: Callable[[], Sequence[str]]) -> None:
        self._names = names
        self._cells = UnreadCells(cells)
        self._chains: dict[str, None] = {}
        #: classes and modules of libraries that cells hand to something, which may put functions into them
        self._handed: dict[int, Any] = {}

    def found(self) -> dict[str, Any]:
        """The values that are there now, by the names under which they travel."""
        for source in self._cells.take():
            self._look_at(source)
        put = {name_in(owner, name): value for owner in self._handed.values() for name, value in _put_into(owner)}
        return put | values_at(self._chains, self._names) | extensions_of_libraries()

    def stay_away(self, tree: ast.AST, local: Iterable[str]) -> list[str]:
        """Chains that this cell sets in a library, where they will stay, by itself or by functions that it calls;
        ``local``: modules whose state comes back.
        """
        tops = {name.partition(".")[0] for name in local}
        chains = dict.fromkeys(self._set_by_calls(tree)) | assigned_attributes(tree)
        return [
            chain
            for chain, value in sorted(chains.items())
            if (holder := _holder(from_module(chain, self._names), self._names)) is not None
            and _package_of(holder.owner) not in tops
            and not holder.is_of_thread
            and not (_is_extended(holder.owner) and not isinstance(value, _LITERALS))
        ]

    def _set_by_calls(self, tree: ast.AST) -> Iterator[str]:
        defined = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        waiting, seen = [*_called(tree)], set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            value = dict.get(self._names, name)
            if name in defined:
                yield from assigned_attributes(defined[name])
                waiting += _called(defined[name])
            elif isinstance(value, types.FunctionType) and value.__module__ == "__main__":
                yield from stored_attributes(value.__code__)
                waiting += value.__code__.co_names

    def _look_at(self, source: str) -> None:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return
        for chain in dict.fromkeys(handed_chains(tree)):
            holder = _holder(f"{chain}.", self._names)
            if holder is not None and not holder.path and _package_of(holder.owner) not in _NO_LIBRARIES:
                self._handed[id(holder.owner)] = holder.owner
        if _SUSPECT.search(source) is not None:
            chains = sorted(assigned_attributes(tree))
            self._chains |= dict.fromkeys(from_module(chain, self._names) for chain in chains)


def handed_chains(node: ast.AST) -> Iterator[str]:
    """Names and attributes that code reads for another thing than to call them, or to read their attributes."""
    parts = [part for name, part in ast.iter_fields(node) if name not in _ONLY_NAMED]
    for child in (each for part in parts for each in (part if isinstance(part, list) else [part])):
        if not isinstance(child, ast.AST):
            continue
        if not (chain := dotted_name(child)):
            yield from handed_chains(child)
        elif not (isinstance(node, ast.Call) and child is node.func):
            yield chain.rpartition(".")[0] if isinstance(getattr(child, "ctx", None), ast.Store) else chain


def _put_into(owner: Any) -> Iterator[tuple[str, Any]]:
    """Functions of the notebook that a class or module of a library has."""
    for name, value in list(vars(owner).items()):
        if (kind := type(value)) in _WITH_FUNCTIONS:
            function = value if kind is types.FunctionType else function_of(value)
            if getattr(function, "__module__", "") == "__main__":
                yield name, value


def _place(chain: str, names: dict[str, Any]) -> tuple[str, Any] | None:
    holder, attribute = _holder(chain, names), chain.rpartition(".")[2]
    value = _ABSENT if holder is None else holder.value_of(attribute)
    if holder is None or value is _ABSENT or isinstance(value, types.ModuleType) or chain in _OF_THE_PROCESS:
        return None
    return holder.name_of(attribute), value


@dataclass(frozen=True)
class _Holder:
    """To which a chain's last attribute belongs: a module, a class in one, or an object that one of these has."""

    owner: Any
    #: from the module or class to the object
    path: tuple[str, ...] = ()

    def value_of(self, attribute: str) -> Any:
        if not self.path and not _has_properties(self.owner):
            return vars(self.owner).get(attribute, _ABSENT)
        with contextlib.suppress(Exception):  # a property of the library's
            return functools.reduce(getattr, (*self.path, attribute), self.owner)
        return _ABSENT

    @property
    def is_of_thread(self) -> bool:
        """Tell if it is a thread-local object, whose attributes travel (adapters/stdlib/thread_locals.py)."""
        kind = self.value_of("__class__") if self.path else None
        return isinstance(kind, type) and issubclass(kind, threading.local)

    def name_of(self, attribute: str) -> str:
        """Under which name the attribute travels."""
        return name_in(self.owner, ".".join((*self.path, attribute)))


def _holder(chain: str, names: dict[str, Any]) -> _Holder | None:
    """None: it belongs to another thing."""
    if any(".".join(chain.split(".")[-2:]) in adapter.carried_calls for adapter in loaded_adapters()):
        return None
    root, *path = chain.split(".")[:-1]
    owner = dict.get(names, root, sys.modules.get(root))  # asks nobody for what was not sent
    if type(owner) in weakref.ProxyTypes:  # of something that may be gone
        return None
    while path and _is_open(owner) and _is_open(found := vars(owner).get(path[0])):
        owner, path = found, path[1:]
    if not _is_importable(owner) or (path and _has_own_adapter(owner)):
        return None
    return _Holder(owner, tuple(path))


def _is_open(owner: Any) -> bool:
    return isinstance(owner, types.ModuleType | type)


def _has_properties(owner: Any) -> bool:
    """Tell if it is a module of a class of its own (``torch.utils.deterministic``)."""
    return isinstance(owner, types.ModuleType) and type(owner) is not types.ModuleType


def from_module(chain: str, names: dict[str, Any]) -> str:
    """The chain from the module that has the object of its first name (``from plotly.io import templates``)."""
    root, _, rest = chain.partition(".")
    thing = dict.get(names, root)
    name = str(type(thing).__module__)
    for module in map(sys.modules.get, () if name in _NO_LIBRARIES else (name, name.partition(".")[0])):
        if type(module) is types.ModuleType:
            found = next((own for own, value in list(vars(module).items()) if value is thing), None)
            if found is not None:
                return f"{module.__name__}.{found}.{rest}"
    return chain


def _is_extended(owner: Any) -> bool:
    """Tell if methods that others put there come back."""
    return any(owner is kind for adapter in loaded_adapters() for kind in adapter.extended_classes())


def _has_own_adapter(owner: Any) -> bool:
    """It knows what is a setting of the library's objects."""
    return adapter_of(_package_of(owner)) is not None


def _package_of(owner: Any) -> str:
    return str(owner.__module__ if isinstance(owner, type) else owner.__name__).partition(".")[0]


def _is_importable(owner: Any) -> bool:
    if isinstance(owner, types.ModuleType):
        return sys.modules.get(owner.__name__) is owner and owner.__name__ != "__main__"
    module = sys.modules.get(owner.__module__) if isinstance(owner, type) else None
    return module is not None and owner.__module__ != "__main__" and vars(module).get(owner.__qualname__) is owner
