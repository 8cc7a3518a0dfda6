"""Normalised code and relevant options; why a cell has no key.

Unknown means no key: :func:`why_not` names what in a cell cannot be keyed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cell_facts import CellFacts

if TYPE_CHECKING:
    from ..options.run_options import RunOptions

#: part of every key: raise it when the meaning of keys changes
KEY_VERSION = "1"
#: magics that leave nothing outside of the cell and read nothing from there
_HARMLESS_MAGICS = frozenset({"matplotlib", "time", "timeit", "config"})
_DYNAMIC_IMPORTS = frozenset({"import_module", "__import__", "find_spec", "reload", "run_path", "run_module"})


@dataclass(frozen=True)
class Rule:
    """Part that an option plays in the key, and why."""

    counts: bool
    why: str


RULES: dict[str, Rule] = {
    "gpus": Rule(True, "the number of devices changes what code does with them"),
    "ranks": Rule(True, "the world size changes batches and sums"),
    "nodes": Rule(True, "as ranks"),
    "min-gpus": Rule(True, "as ranks: with fewer GPUs there are fewer"),
    "ps": Rule(True, "as ranks"),
    "gpu-type": Rule(True, "kernels differ by type of GPU; without the option any GPU is as good"),
    "label": Rule(True, "labels choose nodes, which may differ in ways that nobody can see"),
    "cpus": Rule(True, "sets the number of threads, and with it the order of sums"),
    "in": Rule(True, "through the graph: exactly what is sent is part of the key"),
    "out": Rule(True, "other names come back"),
    "skip": Rule(True, "other names go and come back"),
    "gather": Rule(True, "other values come back"),
    "env": Rule(True, "the cell may read them"),
    "export": Rule(True, "by value: the cell may read them; so may it what the notebook set in os.environ"),
    "environment": Rule(True, "through the environment: its packages are part of the key"),
    "pip": Rule(True, "as environment"),
    "workdir": Rule(True, "relative paths mean other files"),
    "fresh": Rule(True, "a new interpreter lacks what the warm one has imported"),
    "cache": Rule(False, "it is the question itself"),
    "gpu-memory": Rule(False, "a limit: what succeeded stayed below it"),
    "min-gpu-memory": Rule(False, "only where it may run; a success needs no more"),
    "memory": Rule(False, "a limit: what succeeded stayed below it"),
    "timeout": Rule(False, "a limit: what succeeded stayed below it"),
    "rank-timeout": Rule(False, "a limit"),
    "wait": Rule(False, "on queueing only"),
    "restartable": Rule(False, "it goes on where it was"),
    "retries": Rule(False, "a try that failed leaves nothing"),
    "queue": Rule(False, "when it starts, not what it does"),
    "priority": Rule(False, "as queue"),
    "keep": Rule(False, "after the cell only"),
    "on-disconnect": Rule(False, "what happens to the run, not in it"),
    "async": Rule(False, "when the names bind, not what they are"),
    "detach": Rule(False, "as async"),
    "name": Rule(False, "a label"),
    "pin": Rule(False, "how long it is kept"),
    "estimate": Rule(False, "runs nothing"),
}


def options_that_count(options: RunOptions, exported: Mapping[str, str]) -> list[Any]:
    """Plain values of the options that are part of the key (the working directory and the graph come by themselves)."""
    ask = options.ask
    nodes = "any" if ask.any_nodes else ask.nodes
    return [
        ["gpus", ask.gpus],
        ["ranks", [ask.ranks, nodes, ask.ps, ask.evaluator]],
        ["cpus", ask.cpus],
        ["gpu-type", (ask.gpu_type or "").lower()],
        ["label", sorted(ask.labels.items())],
        ["out", None if options.out is None else sorted(options.out)],
        ["skip", sorted(options.skip)],
        ["gather", sorted(options.gather)],
        *([] if ask.min_gpus is None else [["min-gpus", ask.min_gpus]]),
        ["env", sorted({**exported, **options.env}.items())],
        ["fresh", options.fresh],
    ]


def normalised_code(tree: ast.Module) -> str:
    """The syntax tree as text: comments, blank lines, formatting and the kind of quotes leave no trace."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.kind = None  # u"" is ""
    return ast.dump(tree, annotate_fields=False, include_attributes=False)


def why_not(tree: ast.Module, facts: CellFacts) -> str:
    """The reason why a cell has no key, in words; empty when it may have one."""
    if facts.asks_input:
        return "it calls input()"
    if facts.installs:
        return "it installs packages"
    if facts.opaque:
        return "parts of its code are made when it runs (exec, eval, globals …)"
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    harmless = {id(call.func.value) for call in calls if _is_harmless_magic(call)}  # type: ignore[attr-defined]
    reasons = (_reason(call) for call in calls if id(call) not in harmless)
    return next((reason for reason in reasons if reason), "")


def _reason(call: ast.Call) -> str:
    name = _name_of(call)
    if name in _DYNAMIC_IMPORTS:
        return f"it imports modules by {name}(), so which ones is not known before"
    if _is_of_shell(call) and not _is_harmless_magic(call):
        magic = _magic(call)
        return f"it uses the magic %{magic}" if magic else "it runs commands of the shell"
    return "it uses the shell itself (get_ipython)" if name == "get_ipython" else ""


def _name_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else str(getattr(function, "id", ""))


def _is_of_shell(call: ast.Call) -> bool:
    """``get_ipython().….()``, as magics and commands look after their transformation."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(inner, ast.Call) and _name_of(inner) == "get_ipython"


def _magic(call: ast.Call) -> str:
    is_magic = _name_of(call) in ("run_line_magic", "run_cell_magic") and call.args
    name = call.args[0] if is_magic else None
    return str(name.value) if isinstance(name, ast.Constant) else ""


def _is_harmless_magic(call: ast.Call) -> bool:
    return _is_of_shell(call) and _magic(call) in _HARMLESS_MAGICS
