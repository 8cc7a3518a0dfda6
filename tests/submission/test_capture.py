"""Names of ``--gather`` that a cell cannot make are refused before it is queued."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from jupyter_gpu_release.analysis.cell_facts import parse_cell
from jupyter_gpu_release.analysis.dataflow import analyse
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.submission.capture import check_gather

_SETS: dict[str, Any] = {}
exec("def notes():\n    def inner():\n        global noted\n        noted = 1\n    inner()", _SETS)


def check(cell: str, *names: str, sent: tuple[str, ...] = (), functions: tuple[FunctionType, ...] = ()) -> None:
    facts = analyse(parse_cell(cell, lambda body: body), lambda body: body)
    check_gather(names, facts, sent, [function.__code__ for function in functions])


@pytest.mark.parametrize(
    "cell",
    [
        "losses = 1",
        "for losses in x: pass",
        "if x:\n    losses = 1",
        "exec(x)",
        "from x import *",
        "get_ipython().run_line_magic('run', 'train.py')",
    ],
)
def test_what_the_cell_may_make_is_accepted(cell: str) -> None:
    check(cell, "losses")


def test_what_goes_along_and_what_functions_bind_is_accepted() -> None:
    check("x.append(1)", "x", sent=("x",))
    check("notes()", "noted", functions=(_SETS["notes"],))


@pytest.mark.parametrize(
    ("cell", "hint"), [("losses = 1", "did you mean losses?"), ("y = 1", "a name that every rank makes")]
)
def test_a_name_that_nothing_binds_is_refused(cell: str, hint: str) -> None:
    with pytest.raises(OptionError, match="--gather loses: the cell makes no such name") as caught:
        check(cell, "loses")
    assert hint in caught.value.hint
