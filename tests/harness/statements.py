"""Statements of package, tests and benchmarks: ``make statements``.

Every ``ast.stmt`` but docstrings counts. Lines would only be squeezed.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ROOTS = ("jupyter_gpu_release", "tests", "benchmarks")


def statements(source: str) -> int:
    """Count the statements of one file; cells with magics (``tests/differential``) are no Python and count for none."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return 0
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return len(nodes) - sum(_is_docstring(node) for node in nodes)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def by_folder(root: Path) -> Counter[str]:
    """Statements of each folder right below ``root``; files beside them count as ``.``."""
    counted: Counter[str] = Counter()
    for path in root.rglob("*.py"):
        inside = path.relative_to(root).parts
        counted[inside[0] if len(inside) > 1 else "."] += statements(path.read_text(encoding="utf-8"))
    return counted


def report() -> Iterator[str]:
    """Lines: each root's sum, below it its folders."""
    for root in ROOTS:
        counted = by_folder(REPOSITORY / root)
        yield f"{root:<24}{counted.total():>8,}"
        yield from (f"  {name:<22}{count:>8,}" for name, count in sorted(counted.items()))


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report())
