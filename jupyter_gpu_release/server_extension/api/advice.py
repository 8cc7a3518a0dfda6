"""Advice on a notebook as the sidebar shows it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...analysis.advice import CellAdvice, advise
from ...analysis.notebook_file import notebook_of
from ...errors import OptionError
from ..models import DOCUMENT_VERSION, AdviceDocument, CellAdviceRow

_HOW_TO_TIME = "setting: Recording timing"
#: reading code keeps a core busy: one notebook at a time, in a thread that nothing else waits for
_reader = ThreadPoolExecutor(1, thread_name_prefix="advice")


async def advice_on(notebook: dict[str, Any], path: str) -> AdviceDocument:
    """Read the notebook; nothing of it is run. Raises :class:`OptionError` for what is no Python notebook."""
    if not isinstance(notebook.get("cells"), list):
        raise OptionError(f"{path} is not a notebook: it has no cells", hint="open a notebook")
    return await asyncio.get_running_loop().run_in_executor(_reader, _read, notebook, path)


def _read(notebook: dict[str, Any], path: str) -> AdviceDocument:
    advice = advise(notebook_of(notebook, Path(path)))
    cells = [_row(each) for each in advice.cells if each.reason]
    return AdviceDocument(DOCUMENT_VERSION, advice.conclusion(_HOW_TO_TIME), cells, advice.plain_s, advice.cells_s)


def _row(each: CellAdvice) -> CellAdviceRow:
    cell = each.cell
    return CellAdviceRow(
        cell.at,
        cell.number,
        cell.first_line,
        each.kind,
        each.verdict,
        each.reason,
        list(each.sent),
        list(each.back),
        each.line,
        cell.took_s,
    )
