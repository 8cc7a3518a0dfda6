"""Loops that a restartable cell cannot leave and enter again: found before it runs."""

from __future__ import annotations

import ast
import inspect
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_NAME = "resumable"
#: what these give is gone once it was read
_OUTSIDE = {
    "open": "the lines of an open file are read once: read them into a list before the loop",
    "input": "nobody can be asked again",
    "popen": "what a program prints is read once: read it into a list before the loop",
    "iter": "what a function returned is not returned again: collect it in a list before the loop",
}
#: calls that wait for others, or read what is read once
_WAITS = frozenset(("accept", "acquire", "fetchone", "input", "poll", "select", "sleep", "wait"))
_READS = re.compile("read|readlines?|recv|recv_bytes")
#: they wait if they are called without a value
_WAITS_ALONE = frozenset(("get", "join"))
_GENERATOR, _FILE = "a generator", "an open file"


def branches(node: ast.stmt) -> list[list[ast.stmt]]:
    """Statements inside of one of a cell's top level from which the cell may go on."""
    if isinstance(node, ast.If):
        return [node.body, node.orelse]
    return [node.body] if isinstance(node, ast.With | ast.AsyncWith | ast.Try) else []


def waiting_call(test: ast.expr) -> str:
    """The part of a ``while`` loop's test that waits or reads; empty: there is none."""
    for node in ast.walk(test):
        name = _called(node) if isinstance(node, ast.Call) else ""
        is_alone = name in _WAITS_ALONE and not getattr(node, "args", ())
        if isinstance(node, ast.Await) or name in _WAITS or is_alone or _READS.fullmatch(name):
            return ast.unparse(node)
    return ""


def plain_loops(body: Sequence[ast.stmt], names: Mapping[str, Any]) -> dict[int, str]:
    """Loops between whose rounds a restartable cell cannot be left: line → reason. ``names``: the notebook's."""
    found: dict[int, str] = {}
    for node in body:
        if reason := _why_plain(node, names):
            found[node.lineno] = reason
        for branch in branches(node):
            found |= plain_loops(branch, names)
    return found


def _why_plain(node: ast.stmt, names: Mapping[str, Any]) -> str:
    if isinstance(node, ast.AsyncFor):
        return "`async for`"
    if isinstance(node, ast.While):
        call = waiting_call(node.test)
        return f"its test waits: `{call}`" if call else ""
    if isinstance(node, ast.For) and _resumable_in(node.iter, {_NAME}) is None:
        return next(filter(None, (_read_once(each, names) for each in _gone_over(node.iter))), "")
    return ""


def _read_once(header: ast.expr, names: Mapping[str, Any]) -> str:
    """A word for what can be read only once; empty: that is not known."""
    if isinstance(header, ast.GeneratorExp):
        return _GENERATOR
    if isinstance(header, ast.Call):
        if _called(header) in ("open", "popen"):
            return _FILE
        is_name = isinstance(header.func, ast.Name)
        return _GENERATOR if is_name and inspect.isgeneratorfunction(names.get(_called(header))) else ""
    value = names.get(header.id) if isinstance(header, ast.Name) else None
    return word_of(value) if inspect.isgenerator(value) or isinstance(value, io.IOBase) else ""


def word_of(items: Any) -> str:
    """A word for what a loop goes over."""
    if inspect.isgenerator(items):
        return _GENERATOR
    return _FILE if isinstance(items, io.IOBase) else f"`{type(items).__name__}`"


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
