"""Loops that a restartable cell shall leave and enter again, and cannot: found before it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_NAME = "resumable"
#: what these give is gone once it was read
_OUTSIDE = {
    "open": "the lines of an open file are read once: read them into a list before the loop",
    "input": "nobody can be asked again",
    "popen": "what a program prints is read once: read it into a list before the loop",
    "iter": "what a function returned is not returned again: collect it in a list before the loop",
}


def resumable_problems(tree: ast.Module) -> list[str]:
    """Sentences, each with its line, on loops of a cell that cannot be entered again; empty: there are none."""
    names, opened = {_NAME} | _aliases(tree), _opened(tree)
    found: list[tuple[int, str]] = []
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For | ast.AsyncFor) and (call := _resumable_in(loop.iter, names)) is not None:
            found += [(call.lineno, why) for why in _outside(call, opened)]
            found += [(inner, _NESTED.format(outer=call.lineno)) for inner in _inner(loop, names)]
    return [f"line {line}: {why}" for line, why in sorted(set(found))]


_NESTED = (
    "a resumable loop inside of the one in line {outer}: the cell can be left and entered again in one loop of a nest; "
    "make it a plain loop, or the outer one"
)


def _aliases(tree: ast.Module) -> set[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names if alias.name == _NAME}


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def _resumable_in(header: ast.expr, names: set[str]) -> ast.Call | None:
    calls = (node for node in ast.walk(header) if isinstance(node, ast.Call))
    return next((call for call in calls if _called(call) in names), None)


def _inner(loop: ast.For | ast.AsyncFor, names: set[str]) -> Iterator[int]:
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.For | ast.AsyncFor) and (call := _resumable_in(node.iter, names)) is not None:
                yield call.lineno


def _opened(tree: ast.Module) -> set[str]:
    """Names that the cell binds to files; those of ``with`` are opened again."""
    bound = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    files = [node for node in bound if _called(node.value) in ("open", "popen")]  # type: ignore[arg-type]
    return {target.id for node in files for target in node.targets if isinstance(target, ast.Name)}


def _gone_over(value: ast.expr) -> Iterator[ast.expr]:
    """``value`` and what it goes over itself: of ``enumerate(x)``, ``(f(y) for y in x)``."""
    yield value
    inner: list[ast.expr] = []
    if isinstance(value, ast.GeneratorExp):
        inner = [each.iter for each in value.generators]
    elif isinstance(value, ast.Call) and _called(value) in ("enumerate", "zip", "map", "filter", "tqdm", "reader"):
        inner = value.args
    for each in inner:
        yield from _gone_over(each)


def _outside(call: ast.Call, opened: set[str]) -> Iterator[str]:
    for argument in call.args[:1]:
        if any(isinstance(each, ast.Name) and each.id in opened for each in _gone_over(argument)):
            yield _OUTSIDE["open"]
    inner = [node for argument in call.args[:1] for node in ast.walk(argument) if isinstance(node, ast.Call)]
    for node in inner:
        name = _called(node)
        if name in _OUTSIDE and (name != "iter" or len(node.args) > 1):
            yield _OUTSIDE[name]
