"""Walks a cell's statements in the order in which they run, knowing which names are bound by then."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from . import cell_calls
from .cell import CellFacts, Transform
from .cell_scopes import (
    Comprehension,
    Free,
    free_of_comprehension,
    free_of_function,
    imported_names,
    outer_parts,
    stored_names,
)  # fmt: skip
from .reflection import reflection_in

_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


class Flow:
    """Definite assignment over top-level statements.

    A function's own reads count when its name is first used after its definition, not where it is defined.
    """

    def __init__(self, facts: CellFacts, transform: Transform) -> None:
        self.facts = facts
        self.transform = transform
        self._bound: set[str] = set()
        self._perhaps: set[str] = set()
        self._waiting: dict[str, Free] = {}
        #: reads found now are only hints (text of a magic)
        self.soft = False
        #: inside an `if`, a loop or a guarded `try`: an import here may never run
        self._conditional = 0

    def run(self, statements: list[ast.stmt]) -> None:
        """Walk all of a cell."""
        bound: list[set[str]] = []
        for statement in statements:
            bound.append(set(self._bound))
            self.block([statement])
        if self.facts.reflects or "__main__" in self.facts.modules:
            self._reflect(statements, bound)
        if self.facts.opaque:
            self.soft = True
            for name in list(self._waiting):
                self.read(name)
        if self.facts.installs:
            self.facts.imports.clear()

    def _reflect(self, statements: list[ast.stmt], bound: list[set[str]]) -> None:
        """Names that the statements reach otherwise than by reading them; ``bound``: what was bound before each."""
        found = self.facts.reflection
        for statement, before in zip(statements, bound, strict=True):
            each = reflection_in(statement)
            each.any_name |= bool(each.texts & before)  # a text that the cell makes
            each.names -= before
            found.add(each)
        self.facts.hints |= found.names

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Walk statements one after the other."""
        for statement in statements:
            _VISITS.get(type(statement), Flow._plain)(self, statement)

    # ----------------------------------------------------------------------------------- names
    def read(self, name: str) -> None:
        """``name`` is read here."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            self._use(waiting)
        if name in self._bound:
            return
        if self.soft or name in self._perhaps:
            self.facts.hints.add(name)
        else:
            self.facts.reads.add(name)

    def bind(self, name: str) -> None:
        """``name`` is bound here, for certain."""
        self._bound.add(name)
        self._perhaps.add(name)
        self.facts.bound.add(name)

    def _use(self, free: Free) -> None:
        """A function or comprehension with these free names runs now (or may)."""
        for name in free.reads:
            self.read(name)
        for name in free.writes:
            self._perhaps.add(name)
            self.facts.bound.add(name)
        self._look_at(free.nodes)

    def _look_at(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.Call):
                cell_calls.look_at_call(self, node)
            elif isinstance(node, ast.Attribute):
                cell_calls.note_chain(self.facts, node)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.facts.modules |= _modules(node)

    # ----------------------------------------------------------------------------- expressions
    def expression(self, node: ast.AST | None) -> None:
        """Everything that evaluating ``node`` reads and binds."""
        match node:
            case None:
                return
            case ast.Name(id=name, ctx=ast.Load()):
                self.read(name)
            case ast.Name(id=name):
                self.bind(name)
            case ast.NamedExpr():
                self.expression(node.value)
                self.bind(node.target.id)
            case ast.Lambda():
                self._each(outer_parts(node))
                self._use(free_of_function(node))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node)
            case _:
                if isinstance(node, (ast.Call, ast.Attribute)):
                    self._look_at([node])
                self._each(ast.iter_child_nodes(node))

    def _each(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.expression(node)

    def _comprehension(self, node: Comprehension) -> None:
        self._use(free_of_comprehension(node))

    # ------------------------------------------------------------------------------ statements
    def _plain(self, node: ast.stmt) -> None:
        self._each(ast.iter_child_nodes(node))

    def _assign(self, node: ast.Assign) -> None:
        self.expression(node.value)
        self._each(node.targets)

    def _annotated(self, node: ast.AnnAssign) -> None:
        self.expression(node.annotation)
        self.expression(node.value)
        if node.value is not None or not isinstance(node.target, ast.Name):
            self.expression(node.target)

    def _augmented(self, node: ast.AugAssign) -> None:
        self.expression(node.value)
        if isinstance(node.target, ast.Name):
            self.read(node.target.id)
        self.expression(node.target)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.read(target.id)
                self._bound.discard(target.id)
                self.facts.deleted.add(target.id)
            else:
                self.expression(target)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._each(outer_parts(node))
        free = free_of_function(node)
        if node.decorator_list:
            self._use(free)
        self._define(node.name, free)

    def _define(self, name: str, free: Free) -> None:
        self._waiting[name] = free
        self.bind(name)

    def _class(self, node: ast.ClassDef) -> None:
        self._each([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        methods = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
        kept = self._bound, self._perhaps, self.facts.bound
        self._bound, self._perhaps, self.facts.bound = set(kept[0]), set(kept[1]), set()
        self.block(part for part in node.body if part not in methods)
        self._bound, self._perhaps, self.facts.bound = kept
        free = Free()
        for method in methods:
            self._each(outer_parts(method))
            free.add(free_of_function(method))
        if node.decorator_list or node.bases:  # a base or decorator may call what is in it
            self._use(free)
        self._define(node.name, free)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        modules = _modules(node)
        self.facts.modules |= modules
        if not self._conditional:
            self.facts.imports |= {name.partition(".")[0] for name in modules}
        self.facts.binds_more |= any(alias.name == "*" for alias in node.names)
        for name in imported_names(node):
            self.bind(name)

    def _branches(self, branches: list[list[ast.stmt]], always: bool) -> None:
        """Alternatives, of which one runs (or none, unless ``always``)."""
        start, outcomes = set(self._bound), []
        for branch in branches:
            self._bound = set(start)
            self.block(branch)
            if not (branch and isinstance(branch[-1], ast.Raise)):
                outcomes.append(self._bound)
        if not always:
            outcomes.append(start)
        self._bound = set.intersection(*outcomes) if outcomes else start

    def _if(self, node: ast.If) -> None:
        self.expression(node.test)
        self._conditional += 1
        self._branches([node.body, node.orelse], always=True)
        self._conditional -= 1

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        self.expression(node.test if isinstance(node, ast.While) else node.iter)
        start = set(self._bound)
        self._conditional += 1
        if not isinstance(node, ast.While):
            self.expression(node.target)
        self.block(node.body)
        self._bound = set(start)
        self.block(node.orelse)
        self._conditional -= 1
        self._bound = start

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.expression(item.context_expr)
            self.expression(item.optional_vars)
        self.block(node.body)

    def _try(self, node: ast.Try) -> None:
        guarded = any(_catches_import_error(handler) for handler in node.handlers)
        self._conditional += guarded
        start = set(self._bound)
        self.block([*node.body, *node.orelse])
        after_body = self._bound
        self._bound = start
        for handler in node.handlers:
            self.expression(handler.type)
            if handler.name:
                self._perhaps.add(handler.name)
                self.facts.deleted.add(handler.name)
        named = [[_bind_first(handler), *handler.body] for handler in node.handlers]
        self._branches(named, always=True)
        if any(not isinstance(branch[-1], ast.Raise) for branch in named):
            self._bound = self._bound & after_body
        else:
            self._bound = after_body
        self._conditional -= guarded
        self.block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        self.expression(node.subject)
        self._conditional += 1
        self._branches([_as_statements(case) for case in node.cases], always=False)
        self._conditional -= 1


def _binding(names: Iterable[str]) -> ast.stmt:
    return ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store()) for name in names], value=ast.Constant(None))


def _bind_first(handler: ast.ExceptHandler) -> ast.stmt:
    """The handler's name is bound while it runs."""
    return _binding([handler.name] if handler.name else [])


def _as_statements(case: ast.match_case) -> list[ast.stmt]:
    """What a case does before its body: evaluates the expressions in its pattern, binds names, tests its guard."""
    values = [part.value for part in ast.walk(case.pattern) if isinstance(part, ast.MatchValue)]
    classes = [part.cls for part in ast.walk(case.pattern) if isinstance(part, ast.MatchClass)]
    evaluated: list[ast.stmt] = [ast.Expr(value) for value in [*values, *classes]]
    guard: list[ast.stmt] = [ast.Expr(case.guard)] if case.guard else []
    return [*evaluated, _binding(stored_names(case.pattern)), *guard, *case.body]


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(part, ast.Name) and part.id in _IMPORT_ERRORS for part in ast.walk(handler.type))


def _modules(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if node.level or not node.module or node.module == "__future__":
        return set()
    return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")}


_VISITS: dict[type[ast.stmt], Callable[[Flow, Any], None]] = {
    ast.Assign: Flow._assign,
    ast.AnnAssign: Flow._annotated,
    ast.AugAssign: Flow._augmented,
    ast.Delete: Flow._delete,
    ast.FunctionDef: Flow._function,
    ast.AsyncFunctionDef: Flow._function,
    ast.ClassDef: Flow._class,
    ast.Import: Flow._import,
    ast.ImportFrom: Flow._import,
    ast.If: Flow._if,
    ast.For: Flow._loop,
    ast.AsyncFor: Flow._loop,
    ast.While: Flow._loop,
    ast.With: Flow._with,
    ast.AsyncWith: Flow._with,
    ast.Try: Flow._try,
    ast.TryStar: Flow._try,
    ast.Match: Flow._match,
}
