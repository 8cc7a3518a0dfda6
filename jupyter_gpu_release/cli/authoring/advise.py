"""``jupyter gpu advise``: which cells of a notebook are worth a GPU cell; on request a copy with the magics."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from ...analysis.advice import SHORT_S, Advice, CellAdvice, advise
from ...analysis.notebook_file import read_notebook
from ...errors import OptionError
from ...units import format_count, format_seconds
from ..tables import output_console, write_columns

_MOST_NAMES = 6
_HOW_TO_TIME = "jupyter execute --inplace NOTEBOOK records them"


def run(arguments: argparse.Namespace) -> int:
    """Read the notebook, say what was found, write the copy. No cluster is asked, nothing is run."""
    advice = advise(read_notebook(Path(arguments.notebook)))
    if arguments.write:
        _write(advice, Path(arguments.write))
    if arguments.json:
        sys.stdout.write(json.dumps(_document(advice), indent=2) + "\n")
    else:
        _print(advice, arguments.write)
    return 0


def _write(advice: Advice, target: Path) -> None:
    """Never over a file that is there: the notebook with its outputs may be the only one."""
    if not advice.worth:
        raise OptionError(
            f"{advice.notebook.path}: no cell is worth a GPU cell, so nothing is written",
            hint="write %%gpu_train above a cell to make it one",
        )
    content = advice.rewritten().encode()
    aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        aside.write_bytes(content)
        target.open("x").close()
        aside.replace(target)
    except FileExistsError:
        raise OptionError(f"--write {target}: it exists", hint="name a new file") from None
    except OSError as error:
        raise OptionError(f"--write {target}: {error.strerror}", hint="name a file in a folder of yours") from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def _print(advice: Advice, written: str | None) -> None:
    console = output_console()
    shown = [each for each in advice.cells if each.reason]
    if shown:
        rows = [[str(each.cell.number), _took(each), each.verdict, _about(each)] for each in shown]
        write_columns(console, ["cell", "took", "advice", "why, and what travels"], rows, {"GPU cell": "green"})
    console.print(advice.conclusion(_HOW_TO_TIME), markup=False)
    if written:
        console.print(f"{written} is a copy with {format_count(len(advice.worth), 'GPU cell')}.", markup=False)
    elif advice.worth:
        console.print(
            f"  → jupyter gpu advise {advice.notebook.path} --write FILE makes a copy with them", markup=False
        )


def _took(each: CellAdvice) -> str:
    return "" if each.cell.took_s is None else format_seconds(each.cell.took_s)


def _about(each: CellAdvice) -> str:
    parts = [each.cell.first_line[:40], each.reason]
    if each.kind in ("gpu", "already"):
        parts += [f"sent: {_names(each.sent)}", f"back: {_names(each.back)}"]
    return "; ".join(filter(None, parts))


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "nothing") + more


def _document(advice: Advice) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "notebook": str(advice.notebook.path),
        "short_s": SHORT_S,
        "cells": [
            {
                "cell": each.cell.number,
                "first_line": each.cell.first_line,
                "took_s": each.cell.took_s,
                "advice": each.kind,
                "reason": each.reason,
                "sent": list(each.sent),
                "back": list(each.back),
                "gpus": each.gpus,
            }
            for each in advice.cells
        ],
        "gpu_seconds": {"plain": advice.plain_s, "with_gpu_cells": advice.cells_s},
    }
