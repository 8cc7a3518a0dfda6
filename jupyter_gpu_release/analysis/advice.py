"""Advice on a notebook: which cells are worth a GPU cell, what would travel, what GPU time that saves."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ..errors import OptionError
from ..options.definitions import split_line
from ..units import format_count, format_seconds
from .cell_facts import CellFacts
from .dataflow import analyse
from .gpu_work import GpuWork, WorkFinder, global_names
from .notebook_file import CodeCell, NotebookFile

#: a cell that took less is no reason to take a GPU
SHORT_S = 2.0
_VERDICTS = {"gpu": "GPU cell", "already": "as it is", "unread": "not read"}


@dataclass(frozen=True)
class CellAdvice:
    """``kind``: ``gpu`` (worth it), ``already``, ``short``, ``moves`` (only takes memory), ``plain``, ``unread``."""

    cell: CodeCell
    kind: str
    reason: str = ""
    sent: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    gpus: int = 1

    @property
    def line(self) -> str:
        """The magic's line for it."""
        return "%%gpu_train" + (f" --gpus {self.gpus}" if self.gpus > 1 else "")

    @property
    def verdict(self) -> str:
        """The advice in a word or two."""
        return _VERDICTS.get(self.kind, "plain")

    @property
    def uses_gpu(self) -> bool:
        """Tell if a plain kernel would hold the GPU from this cell on."""
        return self.kind in ("gpu", "already", "short", "moves") and self.gpus > 0


@dataclass(frozen=True)
class Advice:
    """One for each code cell. ``plain_s``: GPU-seconds that plain Jupyter held it, ``cells_s``: with the GPU cells.

    None: the notebook has no times (of these cells).
    """

    notebook: NotebookFile
    cells: tuple[CellAdvice, ...]
    plain_s: float | None = None
    cells_s: float | None = None

    @property
    def worth(self) -> tuple[CellAdvice, ...]:
        """The cells that are worth it."""
        return tuple(each for each in self.cells if each.kind == "gpu")

    def conclusion(self, how_to_time: str) -> str:
        """All of it in some sentences. ``how_to_time``: what records times, for a notebook that has none."""
        count, total = len(self.worth), len(self.cells)
        found = f"{count} of {format_count(total, 'cell')} {'is' if 1 in (count, total) else 'are'} worth a GPU cell."
        if already := sum(each.kind == "already" for each in self.cells):
            others = f"{count} of the others" if count else "none of the others"
            have = f"{format_count(already, 'cell')} {'has' if already == 1 else 'have'} %%gpu_train"
            found = f"{have}, {others} would gain by it."
        if self.plain_s is None or self.cells_s is None:
            how = f"The notebook has no times to compare GPU hours by ({how_to_time})."
            return f"{found} {how}" if count or already else found
        saved_s = max(0.0, self.plain_s - self.cells_s)
        return (
            f"{found} As it ran, a plain kernel held GPUs for {format_seconds(self.plain_s)}, and then until its end; "
            f"GPU cells would hold them for {format_seconds(self.cells_s)}: {format_seconds(saved_s)} for others."
        )

    def rewritten(self) -> str:
        """The notebook's text with the magic above those cells."""
        return self.notebook.with_sources({each.cell.at: f"{each.line}\n{each.cell.source}" for each in self.worth})


@dataclass
class _Known:
    """Names that the cells before have bound: variables, and imported ones, which are there without being sent."""

    variables: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    #: functions and classes → names that they read, which travel with them
    read_by: dict[str, set[str]] = field(default_factory=dict)

    def with_functions(self, names: set[str]) -> set[str]:
        """The variables among ``names``, and what the functions among them read."""
        found, left = set[str](), names & self.variables - self.imported
        while left:
            found |= left
            read = set[str]().union(*(self.read_by.get(name, set()) for name in left))
            left = (read & self.variables) - self.imported - found
        return found

    def note(self, tree: ast.Module, bound: set[str], imported: set[str]) -> None:
        """Take over what a cell binds."""
        self.variables |= bound
        self.imported = (self.imported - bound) | imported
        for name in bound:
            self.read_by.pop(name, None)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.read_by[node.name] = global_names(node)


def advise(notebook: NotebookFile) -> Advice:
    """Read all cells in their order; nothing is run."""
    finder, known, cells = WorkFinder(), _Known(), []
    for cell in notebook.cells:
        cells.append(_advise_cell(cell, finder, known))
    return Advice(notebook, tuple(cells), *_gpu_seconds(cells))


def _advise_cell(cell: CodeCell, finder: WorkFinder, known: _Known) -> CellAdvice:
    if cell.magic and not cell.python.strip():
        return CellAdvice(cell, "plain", f"%%{cell.magic}")
    try:
        tree = ast.parse(cell.python)
        facts = analyse(tree, lambda text: text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        return CellAdvice(cell, "unread", f"not Python{where}")
    work = finder.read(tree)
    imported = _imported(tree)
    sent = tuple(sorted(known.with_functions(facts.reads | facts.hints)))
    back = tuple(sorted((facts.bound - imported) | (work.changed & set(sent))))
    known.note(tree, facts.bound, imported)
    kind, reason = _judge(cell, work, facts)
    gpus = _asked_gpus(cell) if kind == "already" else work.gpus
    return CellAdvice(cell, kind, reason, sent, back, gpus)


def _asked_gpus(cell: CodeCell) -> int:
    """The GPUs that a GPU cell's own line asks for."""
    line = cell.source.strip().partition("\n")[0].removeprefix("%%gpu_train")
    try:
        given = split_line(line).written.get("gpus", ())
    except OptionError:  # it would not run as it is
        return 1
    number = given[0].rpartition(":")[2] if given else ""
    return int(number) if number.isdecimal() else 1


def _imported(tree: ast.Module) -> set[str]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name.partition(".")[0] for node in nodes for alias in node.names}


def _judge(cell: CodeCell, work: GpuWork, facts: CellFacts) -> tuple[str, str]:
    reason = ", ".join(work.work[:2])
    if cell.magic == "gpu_train":
        return "already", "is a GPU cell"
    if work.work and cell.magic:
        return "plain", f"{reason}, but it begins with %%{cell.magic}: take that out first"
    if work.work and facts.asks_input:
        return "plain", f"{reason}, but it asks for input: do that in a cell before"
    if work.work and cell.took_s is not None and cell.took_s < SHORT_S:
        return "short", f"{reason}, but took little time: the CPU does, or %%gpu_train with --keep"
    if work.work:
        return "gpu", reason
    if work.moves:
        return "moves", f"{work.moves[0]} takes GPU memory here: leave the device to the GPU cell"
    return "plain", ""


def _gpu_seconds(cells: list[CellAdvice]) -> tuple[float | None, float | None]:
    """Plain Jupyter holds the GPU from the first cell that uses it to the end, pauses between cells included."""
    first = next((at for at, each in enumerate(cells) if each.uses_gpu), None)
    wanted = [each.cell for each in cells if each.kind in ("gpu", "already")]
    if first is None or not wanted or any(cell.took_s is None for cell in wanted):
        return None, None
    rest = [each.cell for each in cells[first:]]
    starts = [cell.started_at for cell in rest if cell.started_at is not None]
    ends = [cell.started_at + (cell.took_s or 0.0) for cell in rest if cell.started_at is not None]
    held_s = sum(cell.took_s or 0.0 for cell in rest)
    most = max((each.gpus for each in cells if each.uses_gpu), default=1)
    in_cells_s = sum((each.cell.took_s or 0.0) * each.gpus for each in cells if each.kind in ("gpu", "already"))
    return max(held_s, max(ends) - min(starts) if starts else 0.0) * most, in_cells_s
