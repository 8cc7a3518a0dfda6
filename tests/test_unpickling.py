"""Every place outside of ranks where bytes of a run become objects, and what has decided that they may.

A pickle runs code where it is loaded. Whose may be loaded is decided by the gateway (``Act.LOAD`` of
``gateway/auth/permissions.py``: nobody but the owner gets any), and where no gateway is asked by ``client/loading.py``.
A new place belongs in this table, behind one of the two.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import jupyter_gpu_release

_PACKAGE = Path(jupyter_gpu_release.__file__).parent
#: ranks are processes of the owner of what they load; the others are the loading itself
_LOADERS = ("node", "serialization", "adapters")
_NAMES = {"loads", "Unpickler", "rebuild_error", "unpack_error", "error_of"}
_PLACES = {
    # what the gateway gave to the run's owner
    "client/published.py": ["load"],
    "client/tracebacks.py": ["unpack_error", "rebuild_error"],
    "functions/executor.py": ["load"],
    "kernel/magics/runs.py": ["load", "error_of"],
    "kernel/namespace/namespace.py": ["load"],
    "kernel/namespace/post_mortem.py": ["load", "load", "error_of", "load"],
    # what it gave, or of which it has told
    "client/loading.py": ["load"],
}


def _unpickles(tree: ast.AST) -> Iterator[str]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        match call.func:
            case ast.Attribute(ast.Name("codec"), "load"):
                yield "load"
            case ast.Attribute(ast.Name("pickle" | "cloudpickle"), name) if "load" in name or name == "Unpickler":
                yield name
            case ast.Attribute(ast.Name("exceptions"), name) if name in _NAMES:
                yield name
            case ast.Name(name) if name in _NAMES - {"loads"}:
                yield name


def test_each_place_is_known() -> None:
    found = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        name = path.relative_to(_PACKAGE)
        if name.parts[0] not in _LOADERS and (calls := list(_unpickles(ast.parse(path.read_text())))):
            found[str(name)] = sorted(calls)
    assert found == {name: sorted(calls) for name, calls in _PLACES.items()}
