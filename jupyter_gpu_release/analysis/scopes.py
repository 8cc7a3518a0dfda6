"""Free names of functions, lambdas, classes, comprehensions."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass
class FreeNames:
    """``reads``: names read from outside. ``writes``: globals bound or deleted. ``nodes``: calls and imports inside."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    nodes: list[ast.AST] = field(default_factory=list)

    def add(self, other: FreeNames) -> None:
        """Take over all of ``other``."""
        self.reads |= other.reads
        self.writes |= other.writes
        self.nodes += other.nodes


def outer_parts(node: FunctionNode) -> list[ast.expr]:
    """Expressions of a definition that are evaluated where it stands: decorators, defaults, annotations."""
    parts = [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
    if not isinstance(node, ast.Lambda):
        parts += node.decorator_list
        parts += [found for found in (_annotation(argument) for argument in _arguments(node.args)) if found]
        parts += [node.returns] if node.returns else []
    return parts


def _annotation(argument: ast.arg) -> ast.expr | None:
    return argument.annotation


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [extra for extra in (arguments.vararg, arguments.kwarg) if extra]


def free_of_function(node: FunctionNode) -> FreeNames:
    """The names that the function's body takes from outside when it is called."""
    scope = _Scope()
    scope.stores |= {argument.arg for argument in _arguments(node.args)}
    for part in [node.body] if isinstance(node, ast.Lambda) else node.body:
        scope.visit(part)
    return scope.free()


def free_of_comprehension(node: Comprehension) -> FreeNames:
    """Names that a comprehension takes from outside, also in its first iterable; ``:=`` inside counts as a write."""
    scope = _Scope()
    for generator in node.generators:
        scope.visit(generator)
    elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    for element in elements:
        scope.visit(element)
    # in a comprehension the walrus binds outside
    walrus = {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
    free = scope.free()
    free.reads |= scope.loads & walrus
    free.writes |= walrus
    return free


def stored_names(node: ast.AST) -> set[str]:
    """All names that a statement may bind or delete in its own scope."""
    scope = _Scope()
    scope.visit(node)
    return scope.stores | scope.globals


class _Scope(ast.NodeVisitor):
    """Collects one scope; nested scopes are collected by scopes of their own."""

    def __init__(self) -> None:
        self.loads: set[str] = set()
        self.stores: set[str] = set()
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self._inner = FreeNames()

    def free(self) -> FreeNames:
        local = self.stores - self.globals - self.nonlocals
        reads = (self.loads | self._inner.reads | self.nonlocals) - local
        writes = (self.stores & self.globals) | self._inner.writes
        return FreeNames(reads, writes, self._inner.nodes)

    def visit_Name(self, node: ast.Name) -> None:
        (self.loads if isinstance(node.ctx, ast.Load) else self.stores).add(node.id)

    def visit_Global(self, node: ast.Global) -> None:
        self.globals |= set(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.nonlocals |= set(node.names)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.loads.add(node.target.id)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.stores.add(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self.stores.add(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self.stores.add(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.stores.add(node.rest)
        self.generic_visit(node)

    def _visit_import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.stores |= imported_names(node)
        self._inner.nodes.append(node)

    visit_Import = _visit_import  # noqa: N815
    visit_ImportFrom = _visit_import  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        self._inner.nodes.append(node)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._inner.nodes.append(node)
        self.generic_visit(node)

    def _visit_function(self, node: FunctionNode) -> None:
        if not isinstance(node, ast.Lambda):
            self.stores.add(node.name)
        for part in outer_parts(node):
            self.visit(part)
        self._inner.add(free_of_function(node))

    visit_FunctionDef = _visit_function  # noqa: N815
    visit_AsyncFunctionDef = _visit_function  # noqa: N815
    visit_Lambda = _visit_function  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.stores.add(node.name)
        for part in [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]:
            self.visit(part)
        inside = _Scope()
        for statement in node.body:
            inside.visit(statement)
        # methods do not see the class's own names
        self._inner.add(FreeNames(inside.free().reads | inside._inner.reads, inside._inner.writes, inside._inner.nodes))

    def _visit_comprehension(self, node: Comprehension) -> None:
        free = free_of_comprehension(node)
        walrus = {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
        self.stores |= walrus
        self._inner.add(FreeNames(free.reads, free.writes - walrus, free.nodes))

    visit_ListComp = _visit_comprehension  # noqa: N815
    visit_SetComp = _visit_comprehension  # noqa: N815
    visit_DictComp = _visit_comprehension  # noqa: N815
    visit_GeneratorExp = _visit_comprehension  # noqa: N815


def imported_names(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Names that an import statement binds."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return {alias.asname or alias.name for alias in node.names if alias.name != "*"}


def dotted_name(node: ast.AST) -> str:
    """``a.b.c`` for such a node, else an empty string."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
