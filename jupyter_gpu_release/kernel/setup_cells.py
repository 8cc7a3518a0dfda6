"""The cells under ``%%gpu_setup``: each runs here, and is kept for the ranks of this notebook."""

from __future__ import annotations

import ast
from typing import Any

from ..adapters.stdlib.environment import SignalHandlers
from ..analysis.cell_facts import transform_of_bodies
from ..analysis.sources import gpu_cell_name, register_sources
from ..client.tracebacks import syntax_error, with_traceback_lines
from ..errors import OptionError
from ..protocol.cell import CellSource, SetupCell
from ..submission.location import locate
from ..submission.setup import Setup, make_setup_cell, setup_of


class SetupCells:
    """Those of one notebook, in the order in which they first ran."""

    def __init__(self, shell: Any, signal_handlers: SignalHandlers) -> None:
        self._shell = shell
        self._signal_handlers = signal_handlers
        #: by the front end's id of the cell, else by the text
        self._cells: dict[str, SetupCell] = {}

    @property
    def cells(self) -> list[SetupCell]:
        """The cells that ranks will run."""
        return list(self._cells.values())

    def setup(self) -> Setup | None:
        """The setup of a run that is sent now; None: there is none."""
        return setup_of(self.cells) if self._cells else None

    def clear(self) -> int:
        """Forget them all; returns how many there were. What they did here stays."""
        count = len(self._cells)
        self._cells.clear()
        return count

    def run(self, body: str) -> None:
        """Run a cell here, and keep it for the ranks if it went well; raises what it raised, with its own frames."""
        place = locate(self._shell, body, is_cell=True)
        source = transform_of_bodies(self._shell)(body)
        name = gpu_cell_name(body, place.line_offset, place.count)
        register_sources(self._shell.compile, [CellSource(name, place.count, "\n" * place.line_offset + body)])
        try:
            cell = make_setup_cell(source, name, place.count, place.line_offset)
        except SyntaxError as error:
            error.filename = name
            raise syntax_error(error, self._shell) from None
        if "await" in source and _awaits(source):
            raise OptionError("%%gpu_setup cannot await", hint="put what awaits into a cell of its own")
        with self._signal_handlers.everywhere():
            self._execute(cell)
        key = place.cell or body
        self._cells[key] = cell

    def _execute(self, cell: SetupCell) -> None:
        """As a plain cell: the value of its last expression is shown."""
        tree = ast.parse("\n" * cell.line_offset + cell.source, cell.filename)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        flags, names = self._shell.compile.flags, self._shell.user_ns
        try:
            exec(compile(tree, cell.filename, "exec", flags, dont_inherit=True), names)
            if last is not None:
                shown = compile(ast.Interactive([last]), cell.filename, "single", flags, dont_inherit=True)
                exec(shown, names)
        except Exception as error:  # noqa: BLE001 - the user's own, raised again with no frame of ours
            trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
            lines = self._shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=0)
            raise with_traceback_lines(error, lines) from None


def _awaits(source: str) -> bool:
    try:
        compile(source, "<cell>", "exec", dont_inherit=True)
    except SyntaxError:
        return True
    return False
