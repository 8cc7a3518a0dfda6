"""The statement of the notebook that made what a GPU cell misses: it told a library something here, not in the rank."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...adapters.registry import loaded_adapters
from ...analysis.cell_facts import cells_of
from ...analysis.scopes import dotted_name
from ...protocol.runs import ErrorInfo

_QUOTED = re.compile(r"['\"`‘]([^'\"`‘’]{1,80})['\"`’]|<__main__\.(\w+) object at")
_NOT_FOUND = re.compile(r"name '(\w+)' is not defined|Can't get attribute '(\w+)' on <module '__main__'")
#: where asyncio refuses to run a second event loop in the first
_NESTED = re.compile(r"event loop is (?:already )?running|running event loop")
#: names of functions that tell a library something for later
_TELLS = re.compile(r"regist|^(?:set|add|enable|use|install)(?:_|$)")
#: of functions of Python's own modules (``calendar.setfirstweekday``), which has few such words
_PYTHON_TELLS = re.compile(r"regist|^(?:set|add|enable|use|install)")
_MOST_LETTERS = 70
_NO_LIBRARIES = {"__main__", "builtins", __name__.partition(".")[0]}
#: Python's own modules of which all that is registered travels (``ABC.register``)
_CARRIED = {"abc", "copyreg", "sqlite3", "functools", "random", "gc", "warnings"}

Mentions = Callable[[ast.expr, str], bool]


def missed_name(error: ErrorInfo) -> str:
    """The name of the notebook that a cell did not find: read by its code, or (a class) by a pickle in a file."""
    found = _NOT_FOUND.search(error.evalue)
    return next(filter(None, found.groups())) if found is not None else ""


def missed_sentence(error: ErrorInfo, cells: Sequence[str], names: Mapping[str, Any]) -> str:
    """Say which statement it is, and in which cell; empty: none is known. ``cells``: the notebook's, the run's last."""
    words = list(dict.fromkeys("".join(found) for found in _QUOTED.findall(error.evalue)))
    if error.ename == AttributeError.__name__:
        words, tells = words[-1:], _makes_attribute(names)
    elif error.ename == RuntimeError.__name__ and _NESTED.search(error.evalue):
        words, tells = ["nest_asyncio"], _applies
    else:
        words, tells = [*words, *_texts_in(cells[-1] if cells else "")], _registers
    for number in range(len(cells) - 1, 0, -1):
        for call, text in reversed(list(_calls(cells[number]))) if any(map(cells[number].__contains__, "(@")) else ():
            if any(tells(call, word) for word in words):
                return f"`{text}` ran in cell {number} of the notebook, not here: put it under `%%gpu_setup`"
    return ""


class Registrations:
    """Says once of each call of the notebook that registered something with a library that no rank has made it.

    Nothing fails where a library then does something else (``@register_kl(A, B)``).
    """

    def __init__(self) -> None:
        self._read = 0
        self._waiting: list[tuple[str, str]] = []

    def notes(self, packages: Collection[str], names: Mapping[str, Any], body: str = "") -> list[str]:
        """Sentences for the receipt of a cell that may use these packages; ``names`` are the notebook's."""
        cells = cells_of(names)
        for number in range(self._read, len(cells)):
            how = f"ran in cell {number}, not in GPU cells: if they need it, put it under `%%gpu_setup`"
            self._waiting += [(package, f"`{text}` {how}") for package, text in _registered(cells[number], names)]
        self._read = len(cells)
        said = [sentence for package, sentence in self._waiting if package in packages]
        self._waiting = [each for each in self._waiting if each[0] not in packages]
        here = "runs in this cell's process only: if the notebook needs it, call it in a plain cell, too"
        return [*said, *(f"`{text}` {here}" for _, text in _registered(body, {**names, **_imported(body)}))]


def _registered(source: str, names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Packages with which a cell registers what does not travel, each with the text of the statement."""
    for call, text in _calls(source):
        function = _function(call, names)
        name, package = (str(getattr(function, each, "")) for each in ("__name__", "__module__"))
        package = package.partition(".")[0].removeprefix("_")
        is_pythons = package in sys.stdlib_module_names  # a library's other words would name too much
        tells = _PYTHON_TELLS.search(name) is not None if is_pythons else "regist" in name
        if tells and package not in _NO_LIBRARIES and not _travels(name, package):
            yield package, text


def _imported(body: str) -> dict[str, Any]:
    """Modules that a cell imports and this process has loaded, too, by the cell's names for them."""
    try:
        tree = ast.parse(body)
    except (SyntaxError, ValueError):
        return {}
    imports = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    found = {each.asname or _top(each.name): each.name if each.asname else _top(each.name) for each in imports}
    return {name: sys.modules[module] for name, module in found.items() if module in sys.modules}


def _top(module: str) -> str:
    return module.partition(".")[0]


def _travels(name: str, package: str) -> bool:
    return package in _CARRIED or any(name in adapter.carried_calls for adapter in loaded_adapters())


def _calls(source: str) -> Iterator[tuple[ast.expr, str]]:
    """Calls for their effect, and decorators, with the text that names them."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if not dotted_name(node.value.func).startswith("get_ipython"):
                yield node.value, _text(node.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                yield decorator, f"@{_text(decorator)}"


def _text(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]} …"


def _registers(call: ast.expr, word: str) -> bool:
    name = dotted_name(call.func) if isinstance(call, ast.Call) else ""
    return _TELLS.search(name.rpartition(".")[2]) is not None and _mentions(call, word)


def _applies(call: ast.expr, package: str) -> bool:
    """Tell if it is ``nest_asyncio.apply()``, or that of a package made from it."""
    name = dotted_name(call.func) if isinstance(call, ast.Call) else ""
    return name.startswith(package) and name.endswith(".apply")


def _mentions(call: ast.expr, word: str) -> bool:
    """Tell if a text in it (or a part of ``mine::twice``) or name is this word, or the class of this path."""
    return any(
        (isinstance(node, ast.Constant) and word in str(node.value).split("::"))
        or (isinstance(node, ast.Name) and node.id == word)
        or ("." in word and dotted_name(node).rpartition(".")[2] == word.rpartition(".")[2])
        for node in ast.walk(call)
    )


def _makes_attribute(names: Mapping[str, Any]) -> Mentions:
    def makes(call: ast.expr, word: str) -> bool:
        return _mentions(call, word) or word in _words_of(_function(call, names))

    return makes


def _function(call: ast.expr, names: Mapping[str, Any]) -> Any:
    """The function of a module or class that is called."""
    root, *path = dotted_name(call.func if isinstance(call, ast.Call) else call).split(".")
    found = names.get(root)
    for part in path:
        if not isinstance(found, types.ModuleType | type):
            return None
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
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if "run_cell_magic" in source and texts:
        return _texts_in(texts[-1])
    return texts
