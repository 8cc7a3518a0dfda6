"""The statement of the notebook that made what a GPU cell misses: it told a library something here, not in the rank."""

from __future__ import annotations

import ast
import builtins
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from ...adapters.registry import loaded_adapters
from ...analysis.cell_facts import cells_of
from ...analysis.scopes import dotted_name
from ...protocol.runs import ErrorInfo
from ...submission.library_patches import from_module, handed_chains
from ...submission.modules import is_put_by_hand

_QUOTED = re.compile(r"['\"`‘]([^'\"`‘’]{1,80})['\"`’]|<__main__\.(\w+) object at")
_NOT_FOUND = re.compile(r"name '(\w+)' is not defined|Can't get attribute '(\w+)' on <module '__main__'")
_NO_MODULE = (ModuleNotFoundError.__name__, ImportError.__name__)
#: where asyncio refuses to run a second event loop in the first
_NESTED = re.compile(r"event loop is (?:already )?running|running event loop")
#: what torch says of memory that a cell got with its inputs (adapters/torch/tensors.py), which cannot grow
_FIXED = "resize storage that is not resizable"
_NO_GROWTH = (
    "`resize_` cannot grow the memory of a large tensor that was sent: name a copy in the cell (`t = t.clone()`)"
)
#: names of functions that tell a library something for later
_TELLS = re.compile(r"regist|^(?:set|add|enable|use|install)(?:_|$)")
#: of those that are called for what a library does from then on (``calendar.setfirstweekday``); seeds travel
_SETS = re.compile(
    r"^(?:set|add|enable|disable|use|install|switch|configure|config|initiali[sz]e)(?!.*seed)|^(?:start|init|reset)$"
)
#: what such a function cannot act on: the effect is in the library
_PLAIN = (
    *(int, float, complex, str, bytes, type, type(None)),
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
)
#: cells feel what these do without naming them
_EVERYWHERE, _OF_THE_PROCESS = re.compile(r"^install"), {"faulthandler", "resource"}
_MOST_LETTERS = 70
_NO_LIBRARIES = {"__main__", "builtins", __name__.partition(".")[0]}
#: Python's own modules of which all that is registered travels (``ABC.register``)
_CARRIED = {"abc", "copyreg", "sqlite3", "functools", "random", "gc", "warnings"}

Mentions = Callable[[ast.expr, str], bool]


def missed_name(error: ErrorInfo) -> str:
    """The name of the notebook that a cell did not find: read by its code, or (a class) by a pickle in a file."""
    found = _NOT_FOUND.search(error.evalue)
    return next(filter(None, found.groups())) if found is not None else ""


def missed_sentence(error: ErrorInfo, cells: Sequence[str], names: dict[str, Any]) -> str:
    """Say which statement it is, and in which cell; empty: none is known. ``cells``: the notebook's, the run's last."""
    words = list(dict.fromkeys("".join(found) for found in _QUOTED.findall(error.evalue)))
    named: list[str] = []
    if error.ename == RuntimeError.__name__ and _FIXED in error.evalue:
        return _NO_GROWTH
    if error.ename == AttributeError.__name__:
        tells, named, words = _makes_attribute(names), words[:-1], words[-1:]
    elif error.ename in _NO_MODULE:
        return _module_sentence(words, cells)
    elif error.ename == RuntimeError.__name__ and _NESTED.search(error.evalue):
        words, tells = ["nest_asyncio"], _applies
    else:
        words, tells = [*words, *_texts_in(cells[-1] if cells else "")], _registers
    for number in range(len(cells) - 1, 0, -1):
        for call, text in (
            reversed(list(_calls(cells[number], ast.Expr))) if any(map(cells[number].__contains__, "(@")) else ()
        ):
            if any(tells(call, word) for word in words):
                return _not_here(text, number)
    return _handing_sentence(named, words[0], cells, names) if named and words else ""


def _not_here(text: str, number: int) -> str:
    return f"`{text}` ran in cell {number} of the notebook, not here: put it under `%%gpu_setup`"


def _module_sentence(words: Sequence[str], cells: Sequence[str]) -> str:
    """The statement that names a module which nothing can import: it was put into ``sys.modules`` here."""
    for number in range(len(cells) - 1, 0, -1):
        for node in reversed(_parsed(cells[number]).body):
            texts = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            names = [text for text in texts if isinstance(text, str) and text in sys.modules]
            is_put = any(_is_in(name, word) for name in names for word in words) and any(map(is_put_by_hand, names))
            if is_put or (_adds_finder(node) and any(map(is_put_by_hand, words))):
                return _not_here(_text(node), number)
    return ""


def _adds_finder(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and dotted_name(call.func).startswith("sys.meta_path.")


def _handing_sentence(named: Sequence[str], word: str, cells: Sequence[str], names: dict[str, Any]) -> str:
    """The statement that handed a class or module, which has the attribute here, to what may have put it there."""
    bases = (base for kind in _subclasses(object) if kind.__name__ in named for base in type.mro(kind))
    places = [*bases, *(sys.modules[name] for name in named if name in sys.modules)]
    owners = [place for place in places if word in vars(place)]
    for number in range(len(cells) - 1, 0, -1) if owners else ():
        for node in reversed(_parsed(cells[number]).body):
            parts: Sequence[ast.expr | ast.stmt] = [node]
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                parts = node.decorator_list
            for part in parts:
                if any(any(found is owner for owner in owners) for found in _handed(part, names)):
                    return _not_here(_text(part) if part is node else f"@{_text(part)}", number)
    return ""


def _subclasses(kind: type) -> Iterator[type]:
    each: type
    for each in type.__subclasses__(kind):
        yield each
        yield from _subclasses(each)


def _handed(node: ast.expr | ast.stmt, names: dict[str, Any]) -> Iterator[Any]:
    """Things that a statement hands to functions, or that these take themselves."""
    chains = set(handed_chains(ast.Module([node] if isinstance(node, ast.stmt) else [ast.Expr(node)], [])))
    for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
        function = _function(call, names)
        if getattr(function, "__module__", "") == "__main__":
            chains |= _words_of(function)
    yield from (names.get(chain, _at(chain, names)) for chain in chains)


def _is_in(name: str, word: str) -> bool:
    """Tell if an import of a module may say that this is missing: the module, its last part, or what it is in."""
    return word in (name, _last(name)) or name.startswith(f"{word}.")


class Registrations:
    """Says once of each call of the notebook that registered something with a library that no rank has made it.

    Nothing fails where a library then does something else (``@register_kl(A, B)``).
    """

    def __init__(self) -> None:
        self._read = 0
        self._waiting: list[tuple[str, str]] = []

    def notes(
        self, packages: Collection[str], names: dict[str, Any], body: str = "", local: Collection[str] = ()
    ) -> list[str]:
        """Sentences for the receipt of a cell that may use these packages; ``names`` are the notebook's.

        ``local``: packages beside the notebook, whose state travels.
        """
        cells = cells_of(names)
        for number in range(self._read, len(cells)):
            how = f"ran in cell {number}, not in GPU cells: if they need it, put it under `%%gpu_setup`"
            self._waiting += [(package, f"`{text}` {how}") for package, text in _registered(cells[number], names)]
        self._read = len(cells)
        used = {"", *packages, *_packages_in(body)} - {*local}
        said = [sentence for package, sentence in self._waiting if package in used]
        self._waiting = [each for each in self._waiting if each[0] not in used]
        here = "runs in this cell's process only: if the notebook needs it, call it in a plain cell, too"
        told = _registered(body, {**names, **_bound(body)})
        return [*said, *(f"`{text}` {here}" for package, text in told if package not in local)]


def _registered(source: str, names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Packages that a cell tells what does not travel, each with the text of the statement."""
    for call, text in _calls(source, ast.Expr, ast.Assign):  # `old = seterr(…)`, too
        function, path = _function(call, names), dotted_name(call.func if isinstance(call, ast.Call) else call)
        root = names.get(path.partition(".")[0])
        home = root.__name__ if isinstance(root, types.ModuleType) else str(getattr(function, "__module__", ""))
        package, name = re.sub(r"^_(?!_)", "", _top(home)), str(getattr(function, "__name__", _last(path)))
        tells = "regist" in name or (isinstance(call, ast.Call) and text[0] != "@" and _sets(call, name, names))
        if function is not None and tells and package not in _NO_LIBRARIES and not _travels(name, path, package):
            yield "" if _EVERYWHERE.search(name) or package in _OF_THE_PROCESS else package, text
    yield from _made_for_effect(source, names)
    yield from _entered(source, names)


def _made_for_effect(source: str, names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Packages of whose classes for ``with`` a cell makes an object that it does not keep: ``lib.config(jobs=2)``."""
    for call, text in _calls(source, ast.Expr):
        kind = _function(call, names) if isinstance(call, ast.Call) else None
        if isinstance(kind, type) and hasattr(kind, "__enter__") and _is_given_plain(call, names):
            package, path = _top(kind.__module__), dotted_name(getattr(call, "func", call))
            if package not in _NO_LIBRARIES | {"tempfile", "io"} and not _travels(kind.__name__, path, package):
                yield package, text


def _entered(source: str, names: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Packages into whose dicts a cell puts something (``yaml_constructors['!x'] = f``), or modules of their name."""
    for node in _parsed(source).body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if not isinstance(target, ast.Subscript):
                continue
            path = dotted_name(target.value)
            root, place, key = names.get(path.partition(".")[0]), _function(target.value, names), target.slice
            package = _top(root.__name__) if isinstance(root, types.ModuleType) else "__main__"
            if place is sys.modules and isinstance(key, ast.Constant):
                yield _top(str(key.value)), _text(node)
            elif not (place is None or package in _NO_LIBRARIES | {"sys"} or _travels(_last(path), path, package)):
                yield package, _text(node)


def _sets(call: ast.Call, name: str, names: dict[str, Any]) -> bool:
    """Tell if it is called for what its library does from then on, not for what it does with its arguments."""
    return _SETS.search(name) is not None and _is_given_plain(call, names)


def _is_given_plain(call: ast.expr, names: dict[str, Any]) -> bool:
    given = [*call.args, *call.keywords] if isinstance(call, ast.Call) else []
    read = [node.id for part in given for node in ast.walk(part) if isinstance(node, ast.Name)]
    return all(isinstance(names.get(each, vars(builtins).get(each)), _PLAIN) for each in read)


def _bound(body: str) -> dict[str, Any]:
    """Names that a cell binds: modules that this process has loaded, too, and other things, which are unknown."""
    tree = _parsed(body)
    imports = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    found = {each.asname or _top(each.name): each.name if each.asname else _top(each.name) for each in imports}
    unknown = {node.id: ... for node in ast.walk(tree) if isinstance(node, ast.Name) and type(node.ctx) is ast.Store}
    return unknown | {name: sys.modules[module] for name, module in found.items() if module in sys.modules}


def _packages_in(body: str) -> set[str]:
    """Packages that a cell imports itself."""
    found = [node for node in ast.walk(_parsed(body)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [
        [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names] for node in found
    ]
    return {_top(name) for of_node in names for name in of_node}


def _top(module: str) -> str:
    return module.partition(".")[0]


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _travels(name: str, path: str, package: str) -> bool:
    """``path``: as the statement calls it (``plt.style.use``)."""
    ends = {name, f"{package}.{name}", ".".join(path.split(".")[-2:])}
    return package in _CARRIED or any(not ends.isdisjoint(adapter.carried_calls) for adapter in loaded_adapters())


def _calls(source: str, *kinds: type[ast.Expr | ast.Assign]) -> Iterator[tuple[ast.expr, str]]:
    """Calls in statements of these kinds, and decorators, with the text that names them."""
    for node in _parsed(source).body:
        if isinstance(node, kinds) and isinstance(node.value, ast.Call):
            if not dotted_name(node.value.func).startswith("get_ipython"):
                yield node.value, _text(node.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                yield decorator, f"@{_text(decorator)}"


def _parsed(source: str) -> ast.Module:
    """Without a statement where it is no Python."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _text(node: ast.expr | ast.stmt) -> str:
    text = ast.unparse(node).partition("\n")[0]
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} …"


def _registers(call: ast.expr, word: str) -> bool:
    name = dotted_name(call.func) if isinstance(call, ast.Call) else ""
    return _TELLS.search(_last(name)) is not None and _mentions(call, word)


def _applies(call: ast.expr, package: str) -> bool:
    """Tell if it is ``nest_asyncio.apply()``, or that of a package made from it."""
    name = dotted_name(call.func) if isinstance(call, ast.Call) else ""
    return name.startswith(package) and name.endswith(".apply")


def _mentions(call: ast.expr, word: str) -> bool:
    """Tell if a text in it (or a part of ``mine::twice``) or name is this word, or the class of this path."""
    return any(
        (isinstance(node, ast.Constant) and word in str(node.value).split("::"))
        or (isinstance(node, ast.Name) and node.id == word)
        or ("." in word and _last(dotted_name(node)) == _last(word))
        for node in ast.walk(call)
    )


def _makes_attribute(names: dict[str, Any]) -> Mentions:
    def makes(call: ast.expr, word: str) -> bool:
        return _mentions(call, word) or word in _words_of(_function(call, names))

    return makes


def _function(call: ast.expr, names: dict[str, Any]) -> Any:
    """The function of a module or class that is called, or the method of an object that a module has."""
    return _at(dotted_name(call.func if isinstance(call, ast.Call) else call), names)


def _at(chain: str, names: dict[str, Any]) -> Any:
    root, *path = from_module(chain, names).split(".")
    found = names.get(root, sys.modules.get(root))
    if path and not isinstance(found, types.ModuleType | type):
        return None
    for part in path:
        if not isinstance(found, types.ModuleType | type):
            found = type(found)  # asks no property of it
        found = getattr(found, part, None)
    return getattr(found, "__func__", found)


def _words_of(function: Any) -> set[str]:
    code = getattr(function, "__code__", None)
    return set(_words_of_code(code)) if isinstance(code, types.CodeType) else set()


def _words_of_code(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, types.CodeType):
            yield from _words_of_code(constant)


def _texts_in(source: str) -> Iterable[str]:
    """Texts that the GPU cell itself names; as IPython keeps it, the cell is a text."""
    nodes = ast.walk(_parsed(source))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if "run_cell_magic" in source and texts:
        return _texts_in(texts[-1])
    return texts
