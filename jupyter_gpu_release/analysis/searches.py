"""``name = search(…)`` in a cell of ``%%gpu_sweep``: the names that are searched, and the cell of one trial."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from ..errors import OptionError
from .cell_facts import Transform, parse_cell

_SEARCH = "search"
_WHERE = "`name = search(…)` counts at the top level of a `%%gpu_sweep` cell only"


@dataclass(frozen=True)
class SearchedCell:
    """``calls``: searched name → its call in ``text``, whose lines begin below ``line_offset`` others."""

    text: str
    calls: Mapping[str, ast.Call]
    line_offset: int

    def with_values(self, parameters: Mapping[str, Any]) -> str:
        """The cell with values, all of them plain, where the calls stand; each line keeps its number."""
        lines = [line.encode() for line in self.text.split("\n")]
        for name, call in sorted(self.calls.items(), key=lambda item: (item[1].lineno, item[1].col_offset))[::-1]:
            first, last = call.lineno - self.line_offset - 1, (call.end_lineno or call.lineno) - self.line_offset - 1
            before, after = lines[first][: call.col_offset], lines[last][call.end_col_offset :]
            made = f"({parameters[name]!r}{chr(10) * (last - first)})".encode()
            lines[first : last + 1] = (before + made + after).split(b"\n")
        return b"\n".join(lines).decode()

    def space(self, namespace: Mapping[str, Any]) -> dict[str, Any]:
        """The space as ``sweep`` takes it; bounds and choices are evaluated in the notebook."""
        return {name: _evaluated(name, call, namespace) for name, call in self.calls.items()}


def find_searches(body: str, transform: Transform, namespace: Mapping[str, Any], line_offset: int = 0) -> SearchedCell:
    """Find them; raises :class:`OptionError` for those elsewhere, and the cell's own :class:`SyntaxError`."""
    try:
        tree, text = parse_cell(body, str, line_offset=line_offset), body
    except SyntaxError:  # lines of magics and commands: what they stand for has the same lines
        text = transform(body)
        tree = parse_cell(text, str, line_offset=line_offset)
    calls: dict[str, ast.Call] = {}
    for name, call in _assigned(tree):
        if name in calls:
            raise OptionError(f"line {call.lineno}: {name} is searched twice", hint="leave one of the two out")
        calls[name] = call
    others = [call for call in ast.walk(tree) if _is_search(call) and call not in calls.values()]
    if others and not _is_the_users(tree, namespace):
        raise OptionError(f"line {others[0].lineno}: {ast.unparse(others[0])}: {_WHERE}", hint="write lr = search(…)")
    if not calls:
        raise OptionError("nothing is searched in this cell", hint="write lr = search(1e-4, 1e-1, log=True) in it")
    return SearchedCell(text, calls, line_offset)


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and _is_search(value):
            yield target.id, value


def _is_search(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _SEARCH


def _is_the_users(tree: ast.Module, namespace: Mapping[str, Any]) -> bool:
    """Tell if the notebook or the cell has a ``search`` of its own."""
    package = __name__.partition(".")[0]
    if getattr(namespace.get(_SEARCH), "__module__", package).partition(".")[0] != package:
        return True
    return any(getattr(node, "name", "") == _SEARCH for node in tree.body)


def _evaluated(name: str, call: ast.Call, namespace: Mapping[str, Any]) -> Any:
    code = compile(ast.Expression(call), f"<search of {name}>", "eval")
    try:
        return eval(code, {**namespace, _SEARCH: _space_of})
    except (NameError, TypeError) as error:
        raise OptionError(
            f"{name} = {ast.unparse(call)}: {error}",
            hint="it is evaluated in the notebook, before the cell runs: search(1, 8), or search([16, 64])",
        ) from None


def _space_of(low: Any, high: Any = None, *, log: bool = False) -> Any:
    if high is not None:
        return (low, high, "log") if log else (low, high)
    if log or isinstance(low, str) or not hasattr(low, "__iter__"):
        raise TypeError("neither a range nor a list of choices")
    return list(low)
