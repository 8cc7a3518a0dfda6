"""Device choices that the notebook has made: ``device = "cuda" if torch.cuda.is_available() else "cpu"``.

Evaluated on a CPU kernel they say "cpu"; the rank evaluates them again. Found in the source of the cells that were
executed, in order. Nothing is executed here.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .scopes import dotted_name, stored_names

_CONSULTING = (
    "torch.cuda.is_available",
    "torch.cuda.device_count",
    "torch.cuda.current_device",
    "torch.cuda.get_device",
    "torch.cuda.is_bf16_supported",
    "torch.accelerator.",
    "torch.backends.mps.",
    "torch.xpu.",
    "torch.get_default_device",
    "jax.devices",
    "jax.local_devices",
    "jax.device_count",
    "jax.local_device_count",
    "jax.default_backend",
    "tensorflow.config.list_physical_devices",
    "tensorflow.config.list_logical_devices",
    "tensorflow.config.get_visible_devices",
    "tensorflow.config.experimental.list_physical_devices",
    "tensorflow.test.is_gpu_available",
    "cupy.cuda.is_available",
    "cupy.cuda.runtime.getDeviceCount",
    "cupy.is_available",
)
#: calls that a device expression may contain besides those that consult
_HARMLESS = frozenset({"torch.device", "str", "int", "bool", "len", "min", "max", "list", "dict", "type"})
_HARMLESS_NODES = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.IfExp,
    ast.BoolOp,
    ast.Compare,
    ast.UnaryOp,
    ast.BinOp,
    ast.Dict,
    ast.List,
    ast.Tuple,
    ast.Subscript,
    ast.Slice,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.keyword,
    ast.expr_context,
    ast.boolop,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
)
#: words of which one is in every cell that matters
_WORDS = ("cuda", "accelerator", "mps", "jax", "physical_devices", "logical_devices", "xpu", "device", "cpu")

#: name at the root of a chain → what it stands for (``tf`` → ``tensorflow``)
Resolve = Callable[[str], str]
_CONSULTING_NAMES = frozenset({"is_available", "device_count", "list_physical_devices", "list_logical_devices"})
_CONSULTED = frozenset({"cuda", "mps", "xpu", "accelerator", "config", "backends"})
_LONGEST_FUNCTION = 600
#: a cell like ``device = torch.device(device)`` that is run again and again makes a longer one each time
_LONGEST_EXPRESSION = 400


@dataclass(frozen=True)
class Assignment:
    """``expression`` gives a device choice; it needs the names in ``needs`` (device choices too) before."""

    expression: str
    needs: tuple[str, ...] = ()
    #: all names that it reads
    reads: frozenset[str] = frozenset()
    #: found through a function of the notebook that consults the hardware: only taken for values like "cpu"
    through_function: bool = False
    #: evaluated in a GPU cell: a number that it gave is one of that hardware
    in_gpu_cell: bool = False

    def with_written_out(self, name: str, was: Assignment) -> Assignment | None:
        """The same choice where ``name``, which it reads, stands for something else now; None: it gets too long."""
        values = {name: ast.parse(was.expression, mode="eval").body}
        text = ast.unparse(_WrittenOut(values).visit(ast.parse(self.expression, mode="eval")))
        if len(text) > _LONGEST_EXPRESSION or "'''" in text:  # f-strings within f-strings run out of quotes
            return None
        needs = tuple(need for need in dict.fromkeys((*was.needs, *self.needs)) if need != name)
        reads, in_gpu_cell = self.reads - {name} | was.reads, self.in_gpu_cell or was.in_gpu_cell
        return replace(self, expression=text, needs=needs, reads=reads, in_gpu_cell=in_gpu_cell)


class _WrittenOut(ast.NodeTransformer):
    """Puts values in the place of names."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)


@dataclass
class DeviceLedger:
    """Follows the executed cells; knows each name's last device choice and what was put on a device by it."""

    resolve: Resolve = lambda name: name
    #: whether a name is a notebook function that consults the hardware
    consults_inside: Callable[[str], bool] = lambda name: False
    choices: dict[str, Assignment] = field(default_factory=dict)
    #: name → put on a chosen device (True) or on the host on purpose (False), last
    placed: dict[str, bool] = field(default_factory=dict)
    _constants: dict[str, Assignment] = field(default_factory=dict)
    _in_gpu_cell: bool = False

    def add(self, source: str) -> None:
        """Take in the (transformed) source of one executed cell."""
        known = [*self.choices, *self.placed, *self._constants]
        if not any(word in source for word in (*_WORDS, *known)):
            return
        try:
            tree = ast.parse(source)
        except SyntaxError:
            return
        self._block(tree.body)

    def wanted(self, names: Iterable[str]) -> dict[str, Assignment]:
        """The choices among ``names`` and those they are made of, in the order of evaluation."""
        found: dict[str, Assignment] = {}

        def add(name: str) -> None:
            choice = self.choices.get(name)
            if choice is not None and name not in found:
                for need in choice.needs:
                    add(need)
                found[name] = choice

        for name in names:
            add(name)
        return found

    # ------------------------------------------------------------------------------ statements
    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._assign(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign(target, value)
                case ast.If():
                    self._if(statement)
                case ast.Expr(value=ast.Call() as call):
                    self._call(call)
                case ast.With() | ast.AsyncWith() | ast.Try():
                    self._rebind(stored_names(statement))
                    self._block(statement.body)
                case _:
                    self._rebind(stored_names(statement))

    def _rebind(self, names: Iterable[str], made: Mapping[str, Assignment] | None = None) -> None:
        """``names`` stand for something else now, those in ``made`` for choices; what was made of them stays."""
        new = dict(made or {})
        for name in names:
            self.placed.pop(name, None)
            was = self.choices.pop(name, None) or self._constants.pop(name, None)
            if was is not None:
                _write_out(self.choices, name, was)
                _write_out(new, name, was)
        self.choices |= new

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            pairs = zip(target.elts, values, strict=True) if len(values) == len(target.elts) else ()
            alike = [(part, value) for part in target.elts] if not values else pairs
            for part, part_value in alike:
                self._assign(part, part_value)
            return
        if not isinstance(target, ast.Name):
            return
        name, choice, place = target.id, self._choice(value), self._place(value)
        self._rebind([name], {name: choice} if choice is not None else {})
        if isinstance(value, ast.Constant):
            self._constants[name] = Assignment(ast.unparse(value))
        if place is not None:
            self.placed[name] = place

    def _if(self, node: ast.If) -> None:
        """``if torch.cuda.is_available(): device = "cuda"`` (and its else) as a conditional expression."""
        before = {name: choice.expression for name, choice in (self.choices | self._constants).items()}
        then, otherwise = _last_values(node.body), _last_values(node.orelse)
        names = stored_names(node)
        test = self._choice(node.test)
        made: dict[str, Assignment] = {}
        for name in names if test is not None else ():
            parts = [ast.unparse(part[name]) if name in part else before.get(name) for part in (then, otherwise)]
            if None in parts:
                continue
            text = f"({parts[0]}) if ({ast.unparse(node.test)}) else ({parts[1]})"
            choice = self._choice(ast.parse(text, mode="eval").body)
            if choice is not None:
                made[name] = choice
        self._rebind(names, made)

    def _call(self, call: ast.Call) -> None:
        """``model.to(device)``, ``model.cuda()``, and cells inside a cell magic."""
        if not isinstance(call.func, ast.Attribute):
            return
        texts = [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if call.func.attr in ("run_cell_magic", "run_line_magic") and len(texts) > 1:
            if texts[0] in ("gpu_train", "gpu_sweep", "gpu_setup", "time", "capture"):
                around = self._in_gpu_cell
                self._in_gpu_cell = around or texts[0] in ("gpu_train", "gpu_sweep")
                self.add(texts[-1])
                self._in_gpu_cell = around
            return
        place = self._place(call)
        if place is not None and isinstance(call.func.value, ast.Name):
            self.placed[call.func.value.id] = place

    # ----------------------------------------------------------------------------- expressions
    def _full_name(self, node: ast.AST) -> str:
        chain = dotted_name(node)
        root, dot, rest = chain.partition(".")
        return f"{self.resolve(root)}{dot}{rest}" if chain else ""

    def _choice(self, value: ast.expr) -> Assignment | None:
        """Tell if ``value`` consults the hardware, itself or through other choices, and does nothing else."""
        consults = through = False
        needs: list[str] = []
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                name = self._full_name(node.func)
                if name.startswith(_CONSULTING):
                    consults = True
                elif isinstance(node.func, ast.Name) and self.consults_inside(node.func.id):
                    consults = through = True
                elif name not in _HARMLESS:
                    return None
            elif isinstance(node, ast.Name) and node.id in self.choices:
                consults = True
                through = through or self.choices[node.id].through_function
                needs.append(node.id)
            elif not isinstance(node, _HARMLESS_NODES):
                return None
        if not consults:
            return None
        reads = frozenset(node.id for node in ast.walk(value) if isinstance(node, ast.Name))
        return Assignment(ast.unparse(value), tuple(dict.fromkeys(needs)), reads, through, self._in_gpu_cell)

    def _place(self, value: ast.expr) -> bool | None:
        """True: ``value`` puts something on a chosen device; False: on the host; None: neither."""
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            told = [*value.args, *(keyword.value for keyword in value.keywords)]
            if value.func.attr == "cpu" or (value.func.attr == "to" and any(_says_cpu(part) for part in told)):
                return False
        return True if any(self._puts(node) for node in ast.walk(value)) else None

    def _puts(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        told = [keyword.value for keyword in node.keywords if keyword.arg in ("device", None)]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            told += node.args
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            return True
        return any(self._choice(part) is not None for part in told)


def _says_cpu(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and node.args:
        return _says_cpu(node.args[0])
    return isinstance(node, ast.Constant) and node.value == "cpu"


def _last_values(statements: list[ast.stmt]) -> dict[str, ast.expr]:
    """Name → what ``statements`` assign to it last, made of what the names were before."""
    found: dict[str, ast.expr] = {}
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = _WrittenOut(found).visit(value)
    return found


def _write_out(choices: dict[str, Assignment], name: str, was: Assignment) -> None:
    for other in [other for other, choice in choices.items() if name in choice.reads]:
        written = choices.pop(other).with_written_out(name, was)
        if written is not None:
            choices[other] = written


class DeviceHistory:
    """Reads the history of ``cells`` once, as it grows; ``names`` are what they have bound."""

    def __init__(self, names: dict[str, Any], cells: Callable[[], Sequence[str]]) -> None:
        self._names = names
        self._cells = cells
        self._read = 0
        self._ledger = DeviceLedger(resolve=self._resolve, consults_inside=self._consults_inside)
        #: name → (value here, value in the GPU cell)
        self._home: dict[str, tuple[Any, str]] = {}

    def up_to(self, body: str) -> DeviceLedger:
        """The ledger after all executed cells; the cell that is being executed (``body``) is not one of them."""
        cells = self._cells()
        end = len(cells)
        if end > self._read and any(magic in cells[-1] for magic in ("gpu_train", "gpu_sweep")):
            end -= 1
        if end < self._read:  # the history was reset
            self._read = 0
        for source in cells[self._read : end]:
            self._ledger.add(source)
        self._read = max(self._read, end)
        self._add_those_that_came_home()
        return self._ledger

    def note_returned(self, devices: dict[str, str]) -> None:
        """Names that were a device in the GPU cell and came back as "cpu"."""
        namespace = self._names
        self._home |= {name: (namespace.get(name), was) for name, was in devices.items()}

    def _add_those_that_came_home(self) -> None:
        for name, (value, was) in list(self._home.items()):
            if self._names.get(name) is not value:
                del self._home[name]
            elif name not in self._ledger.choices:
                self._ledger.choices[name] = Assignment(repr(was))

    def _resolve(self, name: str) -> str:
        value = self._names.get(name)
        if isinstance(value, types.ModuleType):
            return value.__name__
        module = getattr(value, "__module__", None)
        own = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if isinstance(module, str) and isinstance(own, str) and module != "__main__":
            return f"{module}.{own}"
        return name

    def _consults_inside(self, name: str) -> bool:
        value = self._names.get(name)
        if not isinstance(value, types.FunctionType) or value.__globals__ is not self._names:
            return False
        names = set(value.__code__.co_names)
        small = len(value.__code__.co_code) <= _LONGEST_FUNCTION
        return small and bool(names & _CONSULTING_NAMES) and bool(names & _CONSULTED)
