"""Statements of a restartable cell, made so that its loops are ours to leave and to enter again.

``for x in HEADER:`` becomes ``for x in LOOPS(LOOPS.begin(3), HEADER):`` and ``while TEST:`` becomes
``while LOOK[0] and LOOPS.at(3) or TEST:``, where they stand at the cell's top level, or there inside ``with``, ``if``
or the body of ``try``. Lines and columns stay what they are.
"""

from __future__ import annotations

import ast
import copy
import re
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....analysis.dataflow import analyse
from ....analysis.resumable_loops import branches, waiting_call

Loop = ast.For | ast.While
#: what the ``with`` statements around a loop enter
_Around = tuple[ast.withitem, ...] | None
_ANEW = re.compile(r"[wx][bt]?[+-]?[bt]?(:\w*)?|n")
_TEMPORARY = ("NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile")
#: the builtins by which the cell's code calls us, and sees that it has to
LOOPS, LOOK = "__gpu_release_loops__", "__gpu_release_look__"


@dataclass(frozen=True)
class LoopNode:
    """A loop of the cell. ``statement``: number of the top-level statement that it is, or is in."""

    node: Loop
    #: what it goes over, or its test
    header: ast.expr
    statement: int
    #: what the ``with`` statements around it enter; None: there are none around
    around: _Around

    @property
    def is_inside_with(self) -> bool:
        """Tell if there are any around."""
        return self.around is not None

    @cached_property
    def bound_around(self) -> frozenset[str]:
        """Names that they bind."""
        targets = [item.optional_vars for item in self.around or () if item.optional_vars is not None]
        return frozenset(name for target in targets for name in _names(target))

    @cached_property
    def makes_anew(self) -> str:
        """The call, as the code has it, that begins something anew once they are entered again; empty: none does."""
        calls = (node for item in self.around or () for node in ast.walk(item.context_expr))
        return next((ast.unparse(node) for node in calls if isinstance(node, ast.Call) and _is_anew(node)), "")

    @property
    def variable(self) -> str:
        """The name that counts its rounds; empty: there is more than one, or it is no name."""
        target = getattr(self.node, "target", None)
        if isinstance(target, ast.Tuple) and target.elts and "enumerate" in self.header_names:
            target = target.elts[0]
        return target.id if isinstance(target, ast.Name) and target.id.strip("_") else ""

    @property
    def is_plain(self) -> bool:
        """Tell if its header is ``name`` or ``resumable(name)``: to evaluate it changes nothing."""
        header = self.header
        if not isinstance(header, ast.Call):
            return isinstance(header, ast.Name)
        if _last_name(header.func) != "resumable" or not all(isinstance(each, ast.Name) for each in header.args[:1]):
            return False
        return all(isinstance(each.value, ast.Constant) for each in header.keywords) and len(header.args) == 1

    @cached_property
    def header_names(self) -> set[str]:
        """Names that its header reads."""
        return _names(self.header)

    @property
    def body_names(self) -> set[str]:
        """Names that its rounds read or bind."""
        return {name for node in self.rounds for name in _names(node)}

    @property
    def rounds(self) -> list[ast.stmt]:
        """Statements of a round."""
        test = [ast.Expr(self.header)] if isinstance(self.node, ast.While) else []
        return [*test, *self.node.body]

    @cached_property
    def called(self) -> set[str]:
        """Last names of all that its header calls: ``resumable`` of ``gpu_release.resumable(x)``."""
        return {_last_name(found.func) for found in ast.walk(self.header) if isinstance(found, ast.Call)}


class CellProgram:
    """Top-level statements of a cell. Changes ``nodes``."""

    def __init__(self, nodes: list[ast.stmt]) -> None:
        self._nodes = nodes
        self.loops = [
            LoopNode(loop, loop.iter if isinstance(loop, ast.For) else loop.test, number, around)
            for number, node in enumerate(nodes)
            for loop, around in _loops([node], None)
        ]
        for number, place in enumerate(self.loops):
            if isinstance(place.node, ast.For):
                _drive(place, _call(ast.Name(LOOPS, ast.Load()), [_called("begin", number), place.header]))
            else:
                is_due = ast.Subscript(ast.Name(LOOK, ast.Load()), ast.Constant(0), ast.Load())
                at = ast.BoolOp(ast.And(), [is_due, _called("at", number)])
                _drive(place, ast.BoolOp(ast.Or(), [at, place.header]))
        for node in nodes:
            _let_through(node)

    @cached_property
    def code(self) -> types.CodeType:
        """All of it, compiled to be looked at."""
        tree, flags = ast.Module(self._nodes, []), ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: types.CodeType = compile(tree, "<cell>", "exec", flags, dont_inherit=True)
        return code

    def statements_from(self, number: int, loop: int, *, anew: bool) -> list[ast.stmt]:
        """Statements from this one on, which begins with ``loop``. ``anew``: its header is evaluated again."""
        place = self.loops[loop]
        if not anew:
            _drive(place, _called("again", loop))
        return _entered(self._nodes[number:], place.node)

    def may_read(self, statement: int, loop: int | None) -> set[str]:
        """Names that the cell may read before it binds them, once it goes on there."""
        left = self._nodes[statement:]
        if loop is not None:
            left = _entered(left, self.loops[loop].node)
        facts = analyse(ast.Module(left, []), lambda source: source)
        if facts.opaque or facts.reflects:
            return _ALL
        return facts.reads | facts.hints

    def may_go_back(self, statement: int, loop: int | None) -> set[str]:
        """Names through whose computations it may go back then: those that a round takes over from the one before, and
        those of which ``backward`` or ``grad`` is called before they are bound anew.
        """
        left = self._nodes[statement:]
        found: set[str] = set()
        if loop is not None:
            rounds = self.loops[loop].rounds
            left = [*rounds, *_entered(left, self.loops[loop].node)]
            found = _FirstUses(rounds).read
        calls = (node for each in left for node in ast.walk(each) if isinstance(node, ast.Call))
        named = [_names(part) for node in calls if _last_name(node.func) in _BACK for part in (node.func, *node.args)]
        return _FirstUses(left).read & found.union(*named)


class _FirstUses(ast.NodeVisitor):
    """Names that statements ``read`` before they bind them, if all of it is run once, from top to bottom."""

    def __init__(self, statements: Sequence[ast.stmt]) -> None:
        self.read: set[str] = set()
        self._bound: set[str] = set()
        for statement in statements:
            self.visit(statement)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bound.add(node.id)
        elif node.id not in self._bound:
            self.read.add(node.id)

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> None:
        if node.value is not None:
            self.visit(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.visit(target)

    visit_AnnAssign = visit_NamedExpr = visit_Assign  # noqa: N815 - as ast calls them

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        for name in _names(node.target) - self._bound:
            self.read.add(name)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        for each in (node.iter, node.target, *node.body, *node.orelse):
            self.visit(each)

    visit_AsyncFor = visit_For  # noqa: N815 - as ast calls it


_BACK = ("backward", "grad")


def _last_name(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


class _All(set[str]):
    def __contains__(self, name: object) -> bool:
        return True


_ALL = _All()


def _loops(body: Sequence[ast.stmt], around: _Around) -> Iterator[tuple[Loop, _Around]]:
    for node in body:
        if isinstance(node, ast.For) or (isinstance(node, ast.While) and not waiting_call(node.test)):
            yield node, around
        inner = (*(around or ()), *node.items) if isinstance(node, ast.With | ast.AsyncWith) else around
        for branch in branches(node):
            yield from _loops(branch, inner)


def _is_anew(call: ast.Call) -> bool:
    """Tell if this opens a file for writing that is empty then, or makes a temporary one."""
    if _last_name(call.func) in _TEMPORARY:
        return True
    modes = [*call.args[:2], *(each.value for each in call.keywords if each.arg in ("mode", "flag"))]
    texts = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(_ANEW.fullmatch(text) is not None for text in texts)


def _names(node: ast.AST) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


def _entered(body: list[ast.stmt], loop: Loop) -> list[ast.stmt]:
    """``body`` from ``loop`` on, which is in its first statement, or in a later one: then those before are left out."""
    for place, node in enumerate(body):
        rest = body[place + 1 :]
        if node is loop:
            return [node, *rest]
        branch = next((each for each in branches(node) if any(found is loop for found, _ in _loops(each, None))), None)
        if branch is not None:
            inside = copy.copy(node)
            if isinstance(inside, ast.If):  # is not asked again
                inside.test, inside.orelse = ast.copy_location(ast.Constant(True), inside.test), []
            inside.body = _entered(branch, loop)  # type: ignore[attr-defined]
            return [inside, *rest]
    raise ValueError("the loop is not in these statements")


def _let_through(node: ast.stmt) -> None:
    """Let a cell that is preempted leave the bodies of ``try``: its handlers and its end belong to who goes on."""
    for branch in branches(node):
        for inner in branch:
            _let_through(inner)
    if not isinstance(node, ast.Try) or not any(_loops(node.body, None)):
        return
    if node.handlers:
        again = ast.ExceptHandler(_attribute("preempted"), None, [ast.Raise()])
        node.handlers.insert(0, ast.copy_location(again, node.handlers[0]))
    if node.finalbody:
        is_over = ast.UnaryOp(ast.Not(), _attribute("taken"))
        node.finalbody = [ast.copy_location(ast.If(is_over, node.finalbody, []), node.finalbody[0])]
    ast.fix_missing_locations(node)


def _attribute(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(LOOPS, ast.Load()), name, ast.Load())


def _called(name: str, number: int) -> ast.expr:
    return _call(_attribute(name), [ast.Constant(number)])


def _call(function: ast.expr, arguments: list[ast.expr]) -> ast.expr:
    return ast.Call(function, arguments, [])


def _drive(place: LoopNode, header: ast.expr) -> None:
    driven = ast.fix_missing_locations(ast.copy_location(header, place.header))
    if isinstance(place.node, ast.For):
        place.node.iter = driven
    else:
        place.node.test = driven
