"""Imports that executed cells made for their effect: ``from sklearn.experimental import enable_iterative_imputer``.

Nothing reads the name that such an import binds, so no name takes it to a rank.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence

from ..protocol.cell import SetupCell
from .library_patches import UnreadCells

#: Python's own modules have no effect that counts, and are many
_PYTHONS = sys.stdlib_module_names


class EffectImports:
    """Reads the history of ``cells`` once, as it grows."""

    def __init__(self, cells: Callable[[], Sequence[str]]) -> None:
        self._cells = UnreadCells(cells)
        #: module → name that its import bound, in the order of the imports
        self._bound: dict[str, str] = {}
        self._used: set[str] = set()

    def modules(self) -> list[str]:
        """Full names of the modules, in the order in which they were imported."""
        for source in self._cells.take():
            self._look_at(source)
        return [
            module
            for module, name in self._bound.items()
            if name not in self._used and module in sys.modules and module.partition(".")[0] not in _PYTHONS
        ]

    def _look_at(self, source: str) -> None:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return
        for node in tree.body:
            if isinstance(node, ast.Import):
                self._bound |= {each.name: each.asname or each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for each in node.names:
                    inner = f"{node.module}.{each.name}"
                    self._bound[inner if inner in sys.modules else node.module] = each.asname or each.name
        self._used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and type(node.ctx) is ast.Load}


def effect_cell(module: str) -> SetupCell:
    """The import as a cell of the setup. Nothing fails for it: the GPU cell may do without."""
    source = f"try:\n    __import__({module!r})\nexcept Exception:\n    pass\n"
    return SetupCell(source, f"<import of {module}>", modules=[module])
