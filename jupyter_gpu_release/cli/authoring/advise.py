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
        raise OptionError(f"{advice.notebook.path}: no cell is worth a GPU cell, so nothing is written", hint="")
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
        rows = [[str(each.cell.number), _took(each), _verdict(each), _about(each)] for each in shown]
        write_columns(console, ["cell", "took", "advice", "why, and what travels"], rows, {"GPU cell": "green"})
    console.print(_sum(advice), markup=False)
    if written:
        console.print(f"{written} is a copy with {format_count(len(advice.worth), 'GPU cell')}.", markup=False)
    elif advice.worth:
        console.print(
            f"  → jupyter gpu advise {advice.notebook.path} --write FILE makes a copy with them", markup=False
        )


def _took(each: CellAdvice) -> str:
    return "" if each.cell.took_s is None else format_seconds(each.cell.took_s)


_VERDICTS = {"gpu": "GPU cell", "already": "as it is", "short": "plain", "moves": "plain", "unread": "not read"}


def _verdict(each: CellAdvice) -> str:
    return _VERDICTS.get(each.kind, "plain")


def _about(each: CellAdvice) -> str:
    parts = [each.cell.first_line[:40], each.reason]
    if each.kind in ("gpu", "already"):
        parts += [f"sent: {_names(each.sent)}", f"back: {_names(each.back)}"]
    return "; ".join(filter(None, parts))


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "nothing") + more


def _sum(advice: Advice) -> str:
    count, total = len(advice.worth), len(advice.cells)
    found = f"{count} of {format_count(total, 'cell')} {'is' if 1 in (count, total) else 'are'} worth a GPU cell."
    if already := sum(each.kind == "already" for each in advice.cells):
        others = f"{count} of the others" if count else "none of the others"
        have = f"{format_count(already, 'cell')} {'has' if already == 1 else 'have'} %%gpu_train"
        found = f"{have}, {others} would gain by it."
    if advice.plain_s is None or advice.cells_s is None:
        how = "The notebook has no times to compare GPU hours by (jupyter execute --inplace NOTEBOOK records them)."
        return f"{found} {how}" if count or already else found
    saved_s = max(0.0, advice.plain_s - advice.cells_s)
    return (
        f"{found} As it ran, a plain kernel held GPUs for {format_seconds(advice.plain_s)}, and then until its end; "
        f"GPU cells would hold them for {format_seconds(advice.cells_s)}: {format_seconds(saved_s)} for others."
    )


def _document(advice: Advice) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "notebook": str(advice.notebook.path),
        "short_s": SHORT_S,
        "cells": [
            {
                "cell": each.cell.number, "first_line": each.cell.first_line, "took_s": each.cell.took_s,
                "advice": each.kind, "reason": each.reason, "sent": list(each.sent), "back": list(each.back),
                "gpus": each.gpus,
            }
            for each in advice.cells
        ],
        "gpu_seconds": {"plain": advice.plain_s, "with_gpu_cells": advice.cells_s},
    }  # fmt: skip
