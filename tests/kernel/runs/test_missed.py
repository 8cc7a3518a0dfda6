"""The statement of the notebook that made what a cell misses, found without a cluster."""

from __future__ import annotations

import abc
import atexit
import codecs
import csv
import logging
import mimetypes
import multiprocessing
import sys
import types

import pytest

from jupyter_gpu_release.adapters.adapter import Adapter
from jupyter_gpu_release.kernel.runs.missed import Registrations, missed_name, missed_sentence
from jupyter_gpu_release.protocol.runs import ErrorInfo


class Library:
    """Adds an attribute to a class, as ``tqdm.pandas()`` does."""

    @classmethod
    def switch_on(cls) -> None:
        """It is the code that counts."""
        cls.fast_sum = 1  # type: ignore[attr-defined]

    @classmethod
    def switch_later(cls) -> None:
        """A function inside of it does so."""

        def switch() -> None:
            cls.slow_sum = 1  # type: ignore[attr-defined]

        switch()


NAMES = {"csv": csv, "lib": types.ModuleType("lib"), "Library": Library, "df": object()}
NO_ATTRIBUTE = ErrorInfo("AttributeError", "'Series' object has no attribute 'fast_sum'")


def _gpu(body: str) -> str:
    return f"get_ipython().run_cell_magic('gpu_train', '', {body!r})\n"


@pytest.mark.parametrize(
    ("error", "cells", "said"),
    [
        (NO_ATTRIBUTE, ["x = 1\nLibrary.switch_on()"], "`Library.switch_on()` ran in cell 1"),
        (
            ErrorInfo("AttributeError", "'Series' object has no attribute 'slow_sum'"),
            ["Library.switch_later()"],
            "`Library.switch_later()` ran in cell 1",
        ),
        (
            ErrorInfo("Error", "unknown dialect"),
            [
                "csv.register_dialect('bars')",
                "csv.register_dialect('bars', 'old')\ncsv.register_dialect('bars', 'new')",
            ],
            "`csv.register_dialect('bars', 'new')` ran in cell 2",
        ),
        (
            ErrorInfo("AttributeError", "'DataFrame' object has no attribute 'geo'"),
            ["x = 1", "@lib.register('geo')\nclass Geo: pass"],
            "`@lib.register('geo')` ran in cell 2",
        ),
        (ErrorInfo("Error", "unknown dialect"), ["csv.register_dialect('bars', delimiter='|')"], "ran in cell 1"),
        (
            ErrorInfo("ProgrammingError", "Error binding parameter 1: type 'numpy.int64' is not supported"),
            ["sqlite3.register_adapter(np.int64, int)", "np.int64(3)"],
            "`sqlite3.register_adapter(np.int64, int)` ran in cell 1",
        ),
        (
            ErrorInfo("AttributeError", "'_OpNamespace' 'mine' object has no attribute 'twice'"),
            ["@torch.library.custom_op('mine::twice', mutates_args=())\ndef twice(x): pass", "x.twice()"],
            "`@torch.library.custom_op('mine::twice', mutates_args=())` ran in cell 1",
        ),
        (
            ErrorInfo("RuntimeError", "asyncio.run() cannot be called from a running event loop"),
            ["nest_asyncio.apply()", "df.apply(len)"],
            "`nest_asyncio.apply()` ran in cell 1",
        ),
        (
            ErrorInfo("RepresenterError", "('cannot represent an object', <__main__.Point object at 0x7f4c8de891d0>)"),
            ["yaml.SafeDumper.add_representer(Point, show)"],
            "`yaml.SafeDumper.add_representer(Point, show)` ran in cell 1",
        ),
        (NO_ATTRIBUTE, ["df.fill('other')", "def f(x): return Library.switch_on()"], ""),
        (NO_ATTRIBUTE, ["get_ipython().run_cell_magic('gpu_setup', '', 'Library.switch_on()')"], ""),
        (ErrorInfo("KeyError", "'bars'"), ["df.plot('bars')", "not python ("], ""),
    ],
)
def test_only_a_statement_that_made_it_is_named(error: ErrorInfo, cells: list[str], said: str) -> None:
    found = missed_sentence(error, ["", *cells, _gpu("list(csv.reader(text, 'bars'))")], NAMES)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("evalue", "name"),
    [
        ("name 'x' is not defined", "x"),
        ("Can't get attribute 'Net' on <module '__main__' (built-in)>", "Net"),
        ("Can't get attribute 'Net' on <module 'nets'>", ""),
    ],
)
def test_a_name_is_missed_by_code_or_by_a_pickle_in_a_file(evalue: str, name: str) -> None:
    assert missed_name(ErrorInfo("Error", evalue)) == name


def test_a_registration_that_stays_here_is_said_once_to_who_uses_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adapter, "carried_calls", ("register_frame",))
    library, other = types.ModuleType("plots"), types.ModuleType("frames")
    exec("def register_shape(kind): return lambda cls: cls\ndef other(kind): pass", vars(library))
    exec("def register_frame(name): pass", vars(other))
    for module in (library, other):
        for function in filter(callable, vars(module).values()):
            function.__module__ = module.__name__
    cells = [
        "",
        "@plots.register_shape('round')\nclass Round: pass\nplots.other(1)",
        "frames.register_frame('geo')\ncsv.register_dialect('bars')\nmine.register_hook(1)",
    ]
    names = {"_ih": cells, "plots": library, "frames": other, "csv": csv, "mine": object()}
    said = Registrations()
    assert said.notes(["frames", "csv"], names) == []
    (sentence,) = said.notes(["plots", "frames"], names)
    assert sentence.startswith("`@plots.register_shape('round')` ran in cell 1, not in GPU cells")
    assert said.notes(["plots"], names) == []
    cells.append("plots.register_shape(2)")
    assert len(said.notes(["plots"], names)) == 1


def test_what_is_registered_with_a_module_of_pythons_own_is_said_unless_it_travels() -> None:
    cells = [
        "",
        "mimetypes.add_type('a/parquet', '.parq')\nmultiprocessing.set_start_method('spawn', force=True)\n"
        "csv.register_dialect('bars')\nabc.ABCMeta.register(abc.ABC, int)\nmimetypes.guess_type('a.txt')\n"
        "sys.set_int_max_str_digits(9000)",
    ]
    names = {"_ih": cells} | {each.__name__: each for each in (abc, csv, mimetypes, multiprocessing, sys)}
    first, second = Registrations().notes(["abc", "csv", "mimetypes", "multiprocessing", "sys"], names)
    assert first.startswith("`mimetypes.add_type('a/parquet', '.parq')` ran in cell 1, not in GPU cells")
    assert second.startswith("`multiprocessing.set_start_method('spawn', force=True)` ran in cell 1")
    assert Registrations().notes(["csv"], names) == []


@pytest.mark.parametrize(
    "statement",
    ["logging.setLoggerClass(type)", "sys.settrace(print)", "atexit.register(print)", "codecs.register(print)"],
)
def test_what_does_not_travel_of_a_module_whose_settings_do_is_said(statement: str) -> None:
    names = {"_ih": ["", statement], **{each.__name__: each for each in (logging, sys, atexit, codecs)}}
    packages = ["logging", "sys", "atexit", "codecs"]
    assert [statement in each for each in Registrations().notes(packages, names)] == [True]
    carried = "logging.addLevelName(25, 'NOTE')\nsys.setrecursionlimit(5000)\nlogging.setLogRecordFactory(print)"
    (said,) = Registrations().notes(packages, names | {"_ih": ["", carried]})
    assert said.startswith("`logging.setLogRecordFactory(print)`")


def test_what_a_gpu_cell_registers_with_a_module_of_pythons_own_is_said_unless_it_travels() -> None:
    body = (
        "import shutil, csv as c, calendar\nshutil.register_archive_format('mine', print)\n"
        "c.register_dialect('bars')\ncalendar.setfirstweekday(6)\nmimetypes.add_type('a/parquet', '.parq')"
    )
    first, second = Registrations().notes([], {"_ih": [""], "mimetypes": mimetypes}, body)
    assert first.startswith("`shutil.register_archive_format('mine', print)` runs in this cell's process only")
    assert second.startswith("`mimetypes.add_type('a/parquet', '.parq')` runs")
