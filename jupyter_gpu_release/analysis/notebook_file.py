"""A notebook's file: its code cells as Python, how long each took, and a copy with other sources."""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import OptionError

#: magics whose body, or line, is Python
_TRANSPARENT = frozenset({"time", "timeit", "prun", "capture"})
_COMMAND = re.compile(r"\s*(?:[\w, ]+=\s*)?[%!]")
#: before the statement, on the line of a magic
_OPTIONS = {
    "timeit": re.compile(r"^(?:-(?:[nrp]\s*\d+|[tcqov]+)\s+)*"),
    "prun": re.compile(r"^(?:-(?:[DlsT]\s*\S+|[rq]+)\s+)*"),
}
_AMOUNT = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(d|h|min|s|ms|[uµμ]s|ns)\b"
#: as ``%%time`` writes it: ``1min 2s``, ``2.5 s``, ``30.1 µs``
_WALL = re.compile(rf"Wall time: ((?:{_AMOUNT}\s*)+)")
_SECONDS = {"d": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "ns": 1e-9}


@dataclass(frozen=True)
class CodeCell:
    """``at``: its place among all cells of the file; ``number``: among those with code, from 1."""

    at: int
    number: int
    source: str
    #: the source as Python: magics and commands left out; empty where another language stands
    python: str
    #: cell magic that it begins with
    magic: str = ""
    took_s: float | None = None
    #: unix seconds
    started_at: float | None = None

    @property
    def first_line(self) -> str:
        """The first line of code below a magic's and imports, to know the cell again."""
        lines = [line.strip() for line in self.source.splitlines()]
        code = [line for line in lines if line and not line.startswith("#")]
        own = [line for line in code if not line.startswith("%%")] or code
        return next((line for line in own if not line.startswith(("import ", "from "))), own[0] if own else "")


@dataclass(frozen=True)
class NotebookFile:
    """A notebook as it was read."""

    path: Path
    document: dict[str, Any]
    cells: tuple[CodeCell, ...]

    def with_sources(self, sources: Mapping[int, str]) -> str:
        """The file's text with other sources for some cells, by their place."""
        document = copy.deepcopy(self.document)
        for at, source in sources.items():
            cell = document["cells"][at]
            cell["source"] = source.splitlines(keepends=True) if isinstance(cell["source"], list) else source
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        return re.sub(r"[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)  # no encoding has them


def read_notebook(path: Path) -> NotebookFile:
    """Read a notebook of format 4; raises :class:`OptionError` for what is none, and for other languages."""
    return notebook_of(_document(path), path)


def notebook_of(document: dict[str, Any], path: Path) -> NotebookFile:
    """A notebook whose content is there already; raises :class:`OptionError` as :func:`read_notebook` does."""
    language = _language(document)
    if language not in ("", "python", "ipython", "python3"):
        raise OptionError(f"{path}: a notebook in {language}", hint="GPU cells are Python")
    code = [
        (at, cell)
        for at, cell in enumerate(document["cells"])
        if isinstance(cell, dict) and cell.get("cell_type") == "code"
    ]
    cells = tuple(_cell(at, number, cell) for number, (at, cell) in enumerate(code, 1))
    if not any(cell.source.strip() for cell in cells):
        raise OptionError(f"{path}: there is no code in this notebook", hint="name one with code cells")
    return NotebookFile(path, document, cells)


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OptionError(f"{path}: there is no such file", hint="name a notebook: advise NOTEBOOK.ipynb") from None
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}", hint="name a notebook") from None
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{path} is not a notebook: {error}", hint="name an .ipynb file") from None
    if isinstance(document, dict) and "worksheets" in document:
        hint = f"bring it up to date: jupyter nbconvert --to notebook {path}"
        raise OptionError(f"{path}: a notebook of an old format (before 4)", hint=hint)
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise OptionError(f"{path} is not a notebook: it has no cells", hint="name an .ipynb file")
    return document


def _language(document: dict[str, Any]) -> str:
    metadata = _mapping(document.get("metadata"))
    info, spec = _mapping(metadata.get("language_info")), _mapping(metadata.get("kernelspec"))
    return str(info.get("name") or spec.get("language") or "").lower()


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _cell(at: int, number: int, cell: dict[str, Any]) -> CodeCell:
    source = cell.get("source", "")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    magic, python = as_python(text)
    started_at, took_s = _times(cell)
    return CodeCell(at, number, text, python, magic, took_s, started_at)


def as_python(source: str) -> tuple[str, str]:
    """The cell magic's name, and the code with magics and commands as ``pass``; other languages: no code."""
    lines = source.split("\n")
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    found = re.match(r"\s*%%(\w+)", lines[first])
    magic = found[1] if found else ""
    if magic:
        if magic not in _TRANSPARENT and magic != "gpu_train":
            return magic, ""
        lines[first] = ""
    raw = "\n".join(lines)
    return magic, raw if _is_python(raw) else "\n".join(_plain_line(line) for line in _joined(lines))


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last: of thousands of nested brackets
        return False
    return True


def _joined(lines: Sequence[str]) -> Iterator[str]:
    """The lines, of magics and commands with those that a backslash at the end adds; their place is left empty."""
    rest = iter(lines)
    for line in rest:
        added = 0
        while _COMMAND.match(line) and line.rstrip().endswith("\\") and (more := next(rest, None)) is not None:
            line, added = f"{line.rstrip()[:-1]} {more.strip()}", added + 1
        yield line
        yield from [""] * added


def _plain_line(line: str) -> str:
    indent, text = line[: len(line) - len(line.lstrip())], line.strip()
    if found := re.match(r"%(\w+)\s+(.*)", text):
        statement = _OPTIONS[found[1]].sub("", found[2]) if found[1] in _OPTIONS else found[2]
        return f"{indent}{statement}" if found[1] in _TRANSPARENT else f"{indent}pass"
    if text.startswith(("%", "!", "?")) or re.match(r"[\w.]+\?{1,2}$", text):
        return f"{indent}pass"
    return re.sub(r"^(\s*[\w, ]+=\s*)[!%].*$", r"\1None", line)


def _times(cell: dict[str, Any]) -> tuple[float | None, float | None]:
    """Start and duration, as JupyterLab, nbclient, papermill, ExecuteTime or ``%%time`` have written them."""
    metadata = _mapping(cell.get("metadata"))
    execution = _mapping(metadata.get("execution"))
    execute_time, papermill = _mapping(metadata.get("ExecuteTime")), _mapping(metadata.get("papermill"))
    pairs = (
        (
            execution.get("iopub.status.busy") or execution.get("iopub.execute_input"),
            execution.get("iopub.status.idle") or execution.get("shell.execute_reply"),
        ),
        (execute_time.get("start_time"), execute_time.get("end_time")),
        (papermill.get("start_time"), papermill.get("end_time")),
    )
    for start, end in pairs:
        begun, ended = _moment(start), _moment(end)
        if begun is not None and ended is not None and ended >= begun:
            return begun, ended - begun
    return None, _wall_time(cell)


def _moment(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def _wall_time(cell: dict[str, Any]) -> float | None:
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        text = _mapping(output).get("text", "")
        if found := _WALL.search("".join(map(str, text)) if isinstance(text, list) else str(text)):
            return sum(float(number) * _SECONDS.get(unit, 1e-6) for number, unit in re.findall(_AMOUNT, found[1]))
    return None
