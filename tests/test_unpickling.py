"""Bytes become objects in one module, and each place that has it done says why they may be trusted.

A pickle runs code where it is loaded. Whose may be loaded is decided by the gateway (``Act.LOAD`` of
``gateway/auth/permissions.py``: nobody but the owner gets any), and where no gateway is asked by ``client/loading.py``.
"""

from __future__ import annotations

import ast
import io
import pickle
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jupyter_gpu_release
from jupyter_gpu_release.unpickling import SteppedUnpickler, Trust, Unpickler, loads

_PACKAGE = Path(jupyter_gpu_release.__file__).parent
_ONE = "unpickling.py"
#: what unpickles, in whatever module it is looked up: a name of pickle's, or of what is built on it
_NAMES = {"Unpickler", "_Unpickler", "read_pickle"}
_LOADS = {"load", "loads", "_load", "_loads"}
_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "torch"}
_SWITCHES = {"allow_pickle", "weights_only"}
#: processes of one cell, which know each other by a key that only they have, send each other messages
_OWN_PROCESSES = {"node/rank/spawned.py"}
#: what runs in a rank, and what is handed its bytes by one of those below. Agents and supervisors, which may be another
#: user's processes, unpickle nothing
_OF_RANKS = ("node/rank/", "node/values/", "node/gang/", "serialization/", "adapters/", "exchange/")
_WHO_SAYS = {
    # what the gateway gave to the run's owner
    "client/published_values.py": {"GATEWAY"},
    "client/tracebacks.py": {"GATEWAY"},
    "functions/executor.py": {"GATEWAY"},
    "kernel/magics/runs.py": {"GATEWAY"},
    "kernel/namespace/namespace.py": {"GATEWAY"},
    "kernel/namespace/post_mortem.py": {"GATEWAY"},
    # what it gave, or of which it has told
    "client/loading.py": {"GATEWAY", "STORE"},
}


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(_PACKAGE.rglob("*.py")):
        yield path.relative_to(_PACKAGE).as_posix(), ast.parse(path.read_text())


def _modules(tree: ast.Module) -> dict[str, str]:
    """Names in a module's code that are modules which can unpickle, by whatever name they were imported."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found[name] = alias.name if alias.asname else name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {name: module for name, module in found.items() if module.partition(".")[0] in _MODULES}


def unpicklings(source: str) -> list[str]:
    """What in this code unpickles, or may."""
    tree = ast.parse(source)
    modules, found = _modules(tree), []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if name in _NAMES:
                found.append(name)
            case ast.Attribute(ast.Name(module), name) if module in modules and name in _LOADS:
                found.append(f"{modules[module]}.{name}")
            case ast.ImportFrom(module=module, level=0) if (module or "").partition(".")[0] in _MODULES - {"torch"}:
                names = {alias.name for alias in node.names}
                found += sorted(names & (_NAMES | _LOADS | {"*"}))
            case ast.ImportFrom(module="multiprocessing.connection", level=0):
                found.append("multiprocessing.connection")
            case ast.Call(keywords=keywords):
                found += sorted({word.arg or "" for word in keywords} & _SWITCHES)
    return found


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle\npickle.loads(b)", ["pickle.loads"]),
        ("import pickle as p\np.load(f)", ["pickle.load"]),
        ("from cloudpickle import cloudpickle\ncloudpickle.loads(b)", ["cloudpickle.cloudpickle.loads"]),
        ("import cloudpickle as pickler\ntake = pickler.loads", ["cloudpickle.loads"]),
        ("from pickle import loads", ["loads"]),
        ("import pickle\nclass R(pickle._Unpickler): ...", ["_Unpickler"]),
        ("import pickle\nclass R(pickle.Unpickler): ...", ["Unpickler"]),
        ("numpy.load(f, allow_pickle=True)", ["allow_pickle"]),
        ("import torch\ntorch.load(f)", ["torch.load"]),
        ("pandas.read_pickle(f)", ["read_pickle"]),
        ("from multiprocessing.connection import Client", ["multiprocessing.connection"]),
        ("import pickle, json\npickle.dumps(json.loads(t))", []),
    ],
)
def test_the_guard_finds_what_unpickles(source: str, what: list[str]) -> None:
    assert unpicklings(source) == what


@pytest.mark.slow("it parses the whole package")
def test_one_module_unpickles() -> None:
    found = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = path.relative_to(_PACKAGE).as_posix()
        if here := unpicklings(path.read_text()):
            found[name] = here
    assert found.keys() == {_ONE, *_OWN_PROCESSES}, found


def test_who_says_why_bytes_may_be_trusted_is_known() -> None:
    """Gateway, server, CLI and agents unpickle nothing: they are in no row."""
    said: dict[str, set[str]] = defaultdict(set)
    for name, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Trust":
                said[name].add(node.attr)
    others = {name: reasons for name, reasons in said.items() if not name.startswith(_OF_RANKS)}
    assert others == _WHO_SAYS
    of_ranks = {reason for name, reasons in said.items() if name not in others for reason in reasons}
    assert of_ranks <= {"OWN", "RANK"}


@pytest.mark.parametrize("reader", [loads, Unpickler, SteppedUnpickler])
@pytest.mark.parametrize("verdict", [None, True, "gateway"])
def test_without_a_verdict_nothing_is_read(reader: Any, verdict: Any) -> None:
    stream = pickle.dumps([1])
    with pytest.raises(TypeError, match="nobody says whose bytes"):
        reader(stream if reader is loads else io.BytesIO(stream), verdict)
    assert loads(stream, Trust.OWN) == [1]
