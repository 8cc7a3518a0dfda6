"""``%%gpu_setup``: cells of the notebook that each of its ranks runs first."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from ..analysis.cell_facts import CellFacts, parse_cell
from ..analysis.dataflow import analyse
from ..protocol.cell import SetupCell

#: code with one of these words may look for a GPU, which a rank does not have before its lease is granted
_DEVICE = re.compile(r"cuda|gpu|device|nvidia|\bmps\b|\bxpu\b", re.IGNORECASE)


@dataclass(frozen=True)
class Setup:
    """The cells in their order, and what they read of the notebook, together."""

    cells: list[SetupCell] = field(default_factory=list)
    facts: CellFacts = field(default_factory=CellFacts)


def make_setup_cell(source: str, filename: str, count: int, line_offset: int) -> SetupCell:
    """A cell as ranks get it; ``source`` is Python. Raises SyntaxError."""
    facts = analyse(parse_cell(source, str, line_offset=line_offset), str)
    is_late = _DEVICE.search(source) is not None
    return SetupCell(source, filename, count, line_offset, sorted(facts.modules), is_late)


def setup_of(cells: list[SetupCell]) -> Setup:
    """The setup that these cells make."""
    body: list[ast.stmt] = []
    for cell in cells:
        body += parse_cell(cell.source, str).body
    return Setup(cells, analyse(ast.Module(body, []), str))
