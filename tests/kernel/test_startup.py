"""The file that IPython runs at each start."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

STARTUP = Path(__file__).parents[2] / "jupyter-config" / "ipython-startup" / "50-jupyter-gpu-release.py"


def test_the_startup_file_names_a_module_that_is_there() -> None:
    (name,) = [
        node.args[0].value
        for node in ast.walk(ast.parse(STARTUP.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__"
        if isinstance(node.args[0], ast.Constant)
    ]
    assert callable(importlib.import_module(name).load)
