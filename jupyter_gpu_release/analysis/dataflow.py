"""Names that a cell reads, binds, deletes, imports (walk of its syntax tree)."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterable
from typing import Any

from . import reflection as analysis_reflection
from .cell_facts import CellFacts, Transform
from .reflection import names_in_annotation, reflection_in
from .scopes import (
    Comprehension,
    FreeNames,
    dotted_name,
    free_of_comprehension,
    free_of_function,
    imported_names,
    outer_parts,
    stored_names,
)


def analyse(tree: ast.Module, transform: Transform, *, postponed: bool = False) -> CellFacts:
    """Find what the cell reads, binds, deletes and imports.

    ``postponed``: an earlier cell has imported ``annotations`` from ``__future__``, so annotations are texts.
    """
    annotations = _Annotations()
    if postponed or _postpones(tree):
        tree = annotations.visit(copy.deepcopy(tree))
    flow = NameFlow(CellFacts(), transform)
    flow.run(tree.body)
    flow.facts.hints |= annotations.names - flow.facts.reads - flow.facts.bound
    flow.facts.annotated |= _names_in_annotations(tree) - flow.facts.reads - flow.facts.bound
    return flow.facts


def _names_in_annotations(tree: ast.Module) -> set[str]:
    """Names in annotations that are texts (``"Node"``, ``list["Node"]``)."""
    nodes = [getattr(node, place, None) for node in ast.walk(tree) for place in ("annotation", "returns")]
    texts = [part for node in nodes if isinstance(node, ast.AST) for part in ast.walk(node)]
    return {name for part in texts if isinstance(part, ast.Constant) for name in names_in_annotation(part.value)}


def _postpones(tree: ast.Module) -> bool:
    return any(
        isinstance(statement, ast.ImportFrom)
        and statement.module == "__future__"
        and any(name.name == "annotations" for name in statement.names)
        for statement in tree.body[:10]
    )


class _Annotations(ast.NodeTransformer):
    """Takes annotations out; keeps their names, which a library may look up (``dataclass`` asks for ``ClassVar``)."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def _take(self, annotation: ast.expr | None) -> None:
        if annotation is not None:
            self.names |= {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self._take(node.annotation)
        node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        self._take(node.annotation)
        node.annotation = None
        return node

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self._take(node.returns)
        node.returns = None
        return self.generic_visit(node)

    visit_FunctionDef = _visit_function  # noqa: N815
    visit_AsyncFunctionDef = _visit_function  # noqa: N815


#: the call by which a process joins its gang
JOINS_GROUP = "init_process_group"
_ASKING = frozenset({"input", "getpass.getpass", "getpass"})
_OPAQUE = frozenset({"exec", "eval", "globals", "locals", "vars", "compile"})
#: magics whose line, or body, is Python of the notebook
_PYTHON_LINES = frozenset({"time", "timeit", "prun", "memit", "mprun", "lprun", "mpl_time", "gpu_train"})
_PYTHON_BODIES = frozenset({"time", "timeit", "prun", "memit", "capture", "gpu_train", "gpu_sweep", "gpu_setup"})
#: magics that list the notebook's names, or forget them
_LISTS = frozenset({"who", "who_ls", "whos", "psearch", "reset", "reset_selective"})
_INSTALLERS = frozenset({"pip", "conda", "mamba", "micromamba", "uv"})
_INSTALLS = re.compile(r"\b(?:pip3?|conda|mamba|uv)\b.*\b(?:(?:un)?install|add)\b")
_INTERPOLATED = re.compile(r"\$\{?([A-Za-z_]\w*)|\{([^{}]+)\}")


def may_install(text: str) -> bool:
    """Tell if a cell's text calls an installer, by a magic, in a shell or in a process that it starts."""
    return _INSTALLS.search(text) is not None


def note_chain(facts: CellFacts, node: ast.Attribute) -> None:
    """Remember ``a.b.c``."""
    if node.attr in analysis_reflection.ATTRIBUTES:
        facts.reflects = True
    facts.unpickles |= node.attr in analysis_reflection.UNPICKLERS
    chain = dotted_name(node)
    if chain:
        facts.chains.add(chain)


def look_at_call(flow: NameFlow, call: ast.Call) -> None:
    """Draw conclusions from one call."""
    name = dotted_name(call.func)
    facts = flow.facts
    if name in analysis_reflection.CALLS or analysis_reflection.frame_texts(call):
        facts.reflects = True
    if name.rpartition(".")[2] == JOINS_GROUP:
        facts.joins_group = True
    if name in _ASKING:
        facts.asks_input = True
    elif name in _OPAQUE:
        facts.opaque = True
    elif isinstance(call.func, ast.Attribute) and _is_shell(call.func.value):
        facts.binds_more = True
        _shell_call(flow, call.func.attr, _texts(call))


def _texts(call: ast.Call) -> list[str]:
    return [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _is_shell(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "get_ipython"


def _shell_call(flow: NameFlow, method: str, texts: list[str]) -> None:
    match method, texts:
        case "run_line_magic", [name, line, *_]:
            _line_magic(flow, name, line)
        case "run_cell_magic", [name, line, body, *_]:
            _cell_magic(flow, name, line, body)
        case (("system" | "getoutput" | "getoutput_split" | "run_line_magic"), [command, *_]):
            _command(flow, command)


def _line_magic(flow: NameFlow, name: str, line: str) -> None:
    if name in _INSTALLERS:
        flow.facts.installs = flow.facts.installs or "install" in line or "add" in line
    if name in _LISTS:
        flow.facts.reflects = flow.facts.reflection.any_name = True
    if name in _PYTHON_LINES:
        _read_code(flow, line)
    else:
        _read_text(flow, [line])
    _command(flow, line)


def _cell_magic(flow: NameFlow, name: str, line: str, body: str) -> None:
    _command(flow, line)
    if name == "capture":
        for word in line.split():
            if word.isidentifier():
                flow.bind(word)
    if name in _PYTHON_LINES:
        _read_code(flow, line)
    if name in _PYTHON_BODIES:
        try:
            tree = ast.parse(flow.transform(body))
        except SyntaxError:
            return
        flow.block(tree.body)


def _command(flow: NameFlow, text: str) -> None:
    """A shell command, or a magic's line: IPython fills in ``$name`` and ``{expression}``."""
    if may_install(text):
        flow.facts.installs = True
    for name, expression in _INTERPOLATED.findall(text):
        if name:
            _hint(flow, {name})
        else:
            _read_text(flow, [expression])


def _read_code(flow: NameFlow, line: str) -> None:
    """Statements after a magic's own options: ``-n 3 f(x)``."""
    words = line
    while words:
        try:
            tree = ast.parse(words.strip())
        except SyntaxError:
            words = words.strip().partition(" ")[2]
            continue
        soft, flow.soft = flow.soft, True
        flow.block(tree.body)
        flow.soft = soft
        return


def _read_text(flow: NameFlow, texts: list[str]) -> None:
    """Text that may be code: the names in it are hints."""
    for text in texts:
        try:
            tree = ast.parse(text.strip())
        except SyntaxError:
            continue
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        _hint(flow, names)


def _hint(flow: NameFlow, names: set[str]) -> None:
    soft, flow.soft = flow.soft, True
    for name in names:
        flow.read(name)
    flow.soft = soft


_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


class NameFlow:
    """Definite assignment over top-level statements.

    A function's own reads count when its name is first used after its definition, not where it is defined.
    """

    def __init__(self, facts: CellFacts, transform: Transform) -> None:
        self.facts = facts
        self.transform = transform
        self._bound: set[str] = set()
        self._perhaps: set[str] = set()
        self._waiting: dict[str, FreeNames] = {}
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
        if self.facts.reflects or self.facts.unpickles or "__main__" in self.facts.modules | self.facts.reads:
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
            _VISITS.get(type(statement), NameFlow._plain)(self, statement)

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

    def _use(self, free: FreeNames) -> None:
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
                look_at_call(self, node)
            elif isinstance(node, ast.Attribute):
                note_chain(self.facts, node)
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

    def _define(self, name: str, free: FreeNames) -> None:
        self._waiting[name] = free
        self.bind(name)

    def _class(self, node: ast.ClassDef) -> None:
        self._each([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        methods = [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
        kept = self._bound, self._perhaps, self.facts.bound
        self._bound, self._perhaps, self.facts.bound = set(kept[0]), set(kept[1]), set()
        self.block(part for part in node.body if part not in methods)
        self._bound, self._perhaps, self.facts.bound = kept
        free = FreeNames()
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
    """A case as statements: evaluate its pattern's expressions, bind names, test its guard, run its body."""
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


_VISITS: dict[type[ast.stmt], Callable[[NameFlow, Any], None]] = {
    ast.Assign: NameFlow._assign,
    ast.AnnAssign: NameFlow._annotated,
    ast.AugAssign: NameFlow._augmented,
    ast.Delete: NameFlow._delete,
    ast.FunctionDef: NameFlow._function,
    ast.AsyncFunctionDef: NameFlow._function,
    ast.ClassDef: NameFlow._class,
    ast.Import: NameFlow._import,
    ast.ImportFrom: NameFlow._import,
    ast.If: NameFlow._if,
    ast.For: NameFlow._loop,
    ast.AsyncFor: NameFlow._loop,
    ast.While: NameFlow._loop,
    ast.With: NameFlow._with,
    ast.AsyncWith: NameFlow._with,
    ast.Try: NameFlow._try,
    ast.TryStar: NameFlow._try,
    ast.Match: NameFlow._match,
}
