"""GPU work in code that has not run: training, generating, moving to a device, with the libraries that use GPUs."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .scopes import dotted_name

#: packages whose work a GPU speeds up
_PACKAGES = frozenset(
    {
        "torch",
        "torchvision",
        "tensorflow",
        "keras",
        "jax",
        "flax",
        "cupy",
        "cudf",
        "cuml",
        "xgboost",
        "lightgbm",
        "catboost",
        "transformers",
        "diffusers",
        "sentence_transformers",
        "accelerate",
        "lightning",
        "pytorch_lightning",
        "fastai",
        "ultralytics",
        "timm",
        "peft",
        "trl",
        "vllm",
        "numba",
    }
)
#: of these every call runs on the GPU
_ALWAYS = frozenset({"cupy", "cudf", "cuml"})
#: methods that compute for long, of objects that come from those packages
_WORK = frozenset(
    {
        "backward",
        "fit",
        "fit_one_cycle",
        "fine_tune",
        "train_on_batch",
        "generate",
        "predict",
        "evaluate",
        "encode",
        "tune",
    }
)


@dataclass
class GpuWork:
    """``work``: calls that compute, in words; ``moves``: calls that take GPU memory; ``gpus``: as many as it names."""

    work: list[str] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    #: names that the work may change in place
    changed: set[str] = field(default_factory=set)
    gpus: int = 1


class WorkFinder:
    """Reads the cells one after the other: what an earlier one defines counts in a later one."""

    def __init__(self) -> None:
        #: names that come from the packages: modules, classes, models, optimisers
        self._related: dict[str, str] = {}
        #: functions and methods of the notebook that do GPU work → what
        self._workers: dict[str, str] = {}
        #: those of them that change names of the notebook, without being given them → which
        self._changes: dict[str, set[str]] = {}

    def read(self, tree: ast.Module) -> GpuWork:
        """Find the work that happens when this cell runs; remember what it defines."""
        found = GpuWork()
        for statement in tree.body:
            self._statement(statement, found)
        return found

    def _statement(self, statement: ast.stmt, found: GpuWork) -> None:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._define(statement)
            return
        self._learn(statement)
        self._calls(statement, found)

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if self._is_related(node):
            self._related[node.name] = "notebook"
        for function in ast.walk(node):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = GpuWork()
                self._learn(function)
                self._calls(function, inside)
                if inside.work:
                    self._workers[function.name] = f"{inside.work[0]} in {function.name}"
                    roots = {_root(each.func) for each in ast.walk(function) if isinstance(each, ast.Call)}
                    made = {each for each in roots & global_names(function) if self._related.get(each) == "made"}
                    self._changes[function.name] = made

    def _learn(self, tree: ast.stmt) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._learn_import(node)
            elif (
                isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and self._is_related(node.value)
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for each in ast.walk(target):
                        if isinstance(each, ast.Name):
                            self._related[each.id] = "made"

    def _learn_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            module = (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
            package = module.partition(".")[0]
            if package in _PACKAGES and (package != "numba" or "cuda" in f"{module}.{alias.name}"):
                self._related[alias.asname or alias.name.partition(".")[0]] = package

    def _is_related(self, node: ast.AST) -> bool:
        return any(isinstance(each, ast.Name) and each.id in self._related for each in ast.walk(node))

    def _calls(self, tree: ast.AST, found: GpuWork) -> None:
        in_loops = {id(node) for node in _in_loops(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._call(node, found, in_loop=id(node) in in_loops)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.gpus = max(found.gpus, _gpu_number(node.value))

    def _call(self, call: ast.Call, found: GpuWork, *, in_loop: bool) -> None:
        name = dotted_name(call.func)
        if _moves(call):
            found.moves.append(f"{name or 'it'}()")
        what = self._work_of(call, name, in_loop=in_loop)
        if what and what not in found.work:
            found.work.append(what)
            found.changed |= {each for each in _touched(call) if self._related.get(each) == "made"}
            found.changed |= self._changes.get(name, set())

    def _work_of(self, call: ast.Call, name: str, *, in_loop: bool) -> str:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else name
        root = _root(call.func)
        package = self._related.get(root, "")
        if method in self._workers:
            return self._workers[method]
        if isinstance(call.func, ast.Attribute):
            is_trainer = "trainer" in root.lower() or package in ("xgboost", "lightgbm")
            if method == "backward" or (package and method in _WORK) or (package and method == "train" and is_trainer):
                return f"{name or method}()"
            return f"{name}()" if package in _ALWAYS else ""
        return f"{name}() in a loop" if in_loop and package in ("made", "notebook") else ""


def global_names(definition: ast.stmt) -> set[str]:
    """The names of the notebook (and of Python) that a function or class reads when it is used."""
    names: set[str] = set()
    left = symtable.symtable(ast.unparse(definition), "<cell>", "exec").get_children()
    while left:
        scope = left.pop()
        names |= {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global() and symbol.is_referenced()}
        left += scope.get_children()
    return names


def _touched(call: ast.Call) -> set[str]:
    """The names that a call works on: its own, and what it is given, but not what that is made with on the way."""
    names = {_root(call.func)}
    for given in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if isinstance(given, ast.Name):
            names.add(given.id)
        elif isinstance(given, ast.Call) and getattr(given.func, "attr", "") not in ("to", "cuda", "cpu"):
            names |= _touched(given)
    return names


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _in_loops(tree: ast.AST) -> Iterator[ast.AST]:
    loops = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
    for node in ast.walk(tree):
        if isinstance(node, loops):
            yield from ast.walk(node)


def _moves(call: ast.Call) -> bool:
    """Tell if the call names a CUDA device: ``.cuda()``, ``.to("cuda")``, ``device="cuda:0"``."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
        return True
    values: Iterable[ast.expr] = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return any(text == "cuda" or text.startswith(("cuda:", "GPU:", "/GPU:")) for text in texts)


def _gpu_number(text: str) -> int:
    """``cuda:3`` → 4 GPUs."""
    start, _, number = text.partition(":")
    return int(number) + 1 if start == "cuda" and number.isdecimal() and len(number) < 3 else 1
