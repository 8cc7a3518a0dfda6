# ruff: noqa: E501 - a cell is one string
"""What was set in a module beside the notebook is so in a GPU cell, and the other way round."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from round_trip import Notebook, RankServer

_SOURCE = """
import math
_ABSENT = object()
rate, log, table, model, lock = 1, [0], {}, None, None
big = b""
def helper(): return "own"
def add(value, place=_ABSENT):
    log.append(value)
    return place is _ABSENT
def read(): return rate, list(log), dict(table), helper()
class Thing:
    size = 1
"""


@pytest.fixture
def nb(ranks: RankServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    book = tmp_path / "book"
    book.mkdir()
    (book / "beside.py").write_text(_SOURCE)
    (book / "user.py").write_text("from beside import log, add\n")
    monkeypatch.chdir(book)
    monkeypatch.syspath_prepend(str(book))
    yield Notebook(ranks, tmp_path)
    for name in ("beside", "user"):
        sys.modules.pop(name, None)


def test_state_goes_in(nb: Notebook) -> None:
    nb.cell(
        "import beside, user\nbeside.rate = 42\nuser.add(1)\nbeside.table['a'] = 2\ndef mine(): return 'patched'\nbeside.helper = mine"
    )
    trip = nb.ok("r = beside.read(), beside.add(3), user.log is beside.log\ndel beside.log[-1]")
    assert nb.ns["r"] == ((42, [0, 1], {"a": 2}, "patched"), True, True)
    assert list(trip.results) == ["r"]
    assert [info.name for info in trip.prepared.sent] == []
    assert "beside:log" not in nb.ns


def test_state_comes_back(nb: Notebook) -> None:
    nb.cell("import beside, user\nmodel = [1]\nbeside.model = model\nlog = beside.log")
    nb.ok(
        "beside.rate = 7\nuser.add(5)\nbeside.new = {'b': [1]}\nmodel.append(2)\nbeside.helper = lambda: 'cells'\ndel beside.table\nimport sys\nthere = [n for n in dir() if ':' in n]"
    )
    ns, beside = nb.ns, sys.modules["beside"]
    assert (beside.rate, beside.log, beside.new, beside.helper()) == (7, [0, 5], {"b": [1]}, "cells")
    assert not hasattr(beside, "table")
    assert beside.log is ns["log"] is sys.modules["user"].log
    assert beside.model is ns["model"] == [1, 2]
    assert ns["there"] == []
    assert not [name for name in ns if ":" in name]
    nb.ok("seen = beside.rate, beside.log")
    assert ns["seen"] == (7, [0, 5])


def test_what_did_not_change_stays_and_what_cannot_go_is_left(nb: Notebook) -> None:
    nb.cell(
        "import beside, threading\nbeside.lock = threading.Lock()\nbeside.big = b'x' * (3 << 20)\nbefore = beside.log, beside.lock"
    )
    trip = nb.ok("r = beside.lock, len(beside.big), beside._ABSENT is beside.add.__defaults__[0]")
    assert nb.ns["r"] == (None, 0, True)
    assert sorted(trip.prepared.notes) == [
        "`beside.big` was set in the notebook and is not so in the cell: 3.0 MiB",
        "`beside.lock` was set in the notebook and is not so in the cell: cannot pickle '_thread.lock' object",
    ]
    assert nb.ns["before"] == (sys.modules["beside"].log, sys.modules["beside"].lock)


def test_an_edited_module_is_as_its_file_says(nb: Notebook) -> None:
    nb.cell("import beside")
    nb.ok("beside.rate")
    Path("beside.py").write_text(_SOURCE.replace("rate,", "rate, other,", 1).replace("= 1, [0]", "= 9, 8, [0]"))
    nb.ok("r = beside.rate")
    assert nb.ns["r"] == 9
    assert sys.modules["beside"].rate == 1


def test_what_cells_set_in_libraries_goes_in(nb: Notebook) -> None:
    nb.cell(
        "import json, ssl, fractions, collections\nbefore = ssl._create_default_https_context, fractions.Fraction.limit_denominator"
    )
    nb.cell(
        "ssl._create_default_https_context = ssl._create_unverified_context\nfractions.Fraction.limit_denominator = lambda self, n: 'mine'\n"
        "json.api_key = 'abc'\njson.extra = open('x.txt', 'w')"
    )
    try:
        trip = nb.ok(
            "import ssl, fractions, json\nr = ssl._create_default_https_context is ssl._create_unverified_context, fractions.Fraction(1, 3).limit_denominator(2), hasattr(json, 'api_key')\n"
            "json.set_here = 1"
        )
        assert nb.ns["r"] == (True, "mine", False)
        assert "`json.api_key` looks like a secret and is held back: set it in the cell" in trip.prepared.warnings
        assert (
            "`json.extra` was set in the notebook and is not so in the cell: cannot pickle an open file ('x.txt')"
            in trip.prepared.notes
        )
        assert (
            "json.set_here: set in this cell only, what is set in a library stays in its process" in trip.prepared.notes
        )
    finally:
        nb.cell(
            "ssl._create_default_https_context, fractions.Fraction.limit_denominator = before\njson.extra.close()\ndel json.extra, json.api_key"
        )


def test_an_attribute_of_a_value_without_a_truth_value_is_set_as_ever(nb: Notebook) -> None:
    nb.cell("import pandas as pd\ndf = pd.DataFrame({'a': [1], 'b': [2]})\ndf.index = [7]")
    nb.ok("df.columns = ['c', 'd']")
    assert list(nb.ns["df"].columns) == ["c", "d"]


def test_what_is_set_in_a_module_that_the_notebook_has_not_imported_is_named(nb: Notebook) -> None:
    sentence = "b.rate: set in this cell only, since the notebook has not imported the module"
    trip = nb.ok("import beside as b, json\nb.rate = 9\njson.x = 1\nr = b.read()[0]")
    assert nb.ns["r"] == 9
    assert [note.partition(":")[0] for note in trip.prepared.notes if sentence in note] == ["b.rate"]
    nb.cell("import beside")
    trip = nb.ok("import beside as b\nb.rate = 9")
    assert sys.modules["beside"].rate == 9
    assert not [note for note in trip.prepared.notes if sentence in note]
