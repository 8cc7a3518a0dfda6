"""The statement of the notebook that made what a cell misses, found without a cluster."""

from __future__ import annotations

import abc
import ast
import asyncio
import atexit
import codecs
import csv
import faulthandler
import fractions
import logging
import mimetypes
import multiprocessing
import os
import random
import resource
import sys
import time
import tracemalloc
import types

import pytest

from jupyter_gpu_release.adapters.adapter import Adapter
from jupyter_gpu_release.kernel.runs.missed import Registrations, missed_name, missed_sentence
from jupyter_gpu_release.protocol.runs import ErrorInfo
from jupyter_gpu_release.submission.modules import is_put_by_hand
from tests.cells.table import CELLS


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
    ("cells", "said"),
    [
        (["x = 1\nfor name in NAMES:\n    setattr(Fraction, name, 3)"], "`for name in NAMES:` ran in cell 1"),
        (["@put_into(fractions.Fraction)\ndef many(self): pass", "Fraction(1, 2)"], "`@put_into(fractions.Fraction)`"),
        (["prepare()", "Fraction.from_float(0.5)"], "`prepare()` ran in cell 1"),
        (["x = Fraction(1, 2)\ndef f(): return Fraction"], ""),
    ],
)
def test_a_statement_that_handed_a_class_to_what_put_an_attribute_there_is_named(
    monkeypatch: pytest.MonkeyPatch, cells: list[str], said: str
) -> None:
    monkeypatch.setattr(fractions.Fraction, "h32_many", 3, raising=False)
    names = {"fractions": fractions, "Fraction": fractions.Fraction, "NAMES": ["h32_many"], "__name__": "__main__"}
    exec("def prepare():\n    for name in NAMES: setattr(Fraction, name, 3)", names)
    error = ErrorInfo("AttributeError", "'Fraction' object has no attribute 'h32_many'")
    found = missed_sentence(error, ["", *cells, _gpu("x.h32_many")], names)
    assert said in found
    assert bool(found) == bool(said)
    other = ErrorInfo("AttributeError", "'Fraction' object has no attribute 'h32_other'")
    assert missed_sentence(other, ["", *cells, _gpu("x.h32_other")], names) == ""


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


class _Registry:
    def enable(self, name: str) -> None:
        """It is held by a module."""


def _shapes() -> dict[str, object]:
    """The names of a notebook that uses a library, a module beside it and modules of Python's own."""
    library, beside = types.ModuleType("shapes"), types.ModuleType("beside")
    for module in (library, beside):
        exec(
            "def set_scale(x): pass\ndef add_shape(kind, f): pass\ndef install(): pass\ndef plot(x): pass\n"
            "class scaled:\n    def __enter__(self): pass",
            vars(module),
        )
        for function in filter(callable, list(vars(module).values())):
            function.__module__ = module.__name__
    library.scales = beside.scales = {}  # type: ignore[attr-defined]
    library.renderers = _Registry()  # type: ignore[attr-defined]
    modules = (asyncio, faulthandler, logging, os, random, resource, sys, time, tracemalloc)
    own = type("Shape", (), {"__module__": "__main__"})
    return {"shapes": library, "beside": beside, "Shape": own, "x": [1], "n": 3} | {m.__name__: m for m in modules}


@pytest.mark.parametrize(
    "statement",
    [
        "shapes.set_scale(3)",
        "old = shapes.set_scale(n)",
        "shapes.add_shape(Shape, lambda s: s.area)",
        "shapes.renderers.enable('plain')",
        "shapes.scaled(by=3)",
        "tracemalloc.start()",
        "shapes.scales['log'] = n",
        "sys.modules['shapes'] = x",
        "asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())",
    ],
)
def test_what_a_library_is_told_is_said_once_to_who_uses_it(statement: str) -> None:
    names = {"_ih": ["", statement], **_shapes()}
    said = Registrations()
    assert said.notes(["numpy"], names) == []
    (sentence,) = said.notes(["shapes", "tracemalloc", "asyncio"], names)
    assert "ran in cell 1, not in GPU cells: if they need it, put it under `%%gpu_setup`" in sentence
    assert said.notes(["shapes", "tracemalloc", "asyncio"], names) == []


def test_a_library_that_the_cell_itself_imports_is_used() -> None:
    names = {"_ih": ["", "tracemalloc.start()"], "tracemalloc": tracemalloc}
    (sentence,) = Registrations().notes([], names, "import tracemalloc as t\nprint(t.is_tracing())")
    assert sentence.startswith("`tracemalloc.start()`")


@pytest.mark.parametrize(
    "statement", ["faulthandler.enable()", "resource.setrlimit(resource.RLIMIT_AS, (n, n))", "shapes.install()"]
)
def test_what_acts_on_the_whole_process_is_said_in_any_cell(statement: str) -> None:
    (sentence,) = Registrations().notes([], {"_ih": ["", statement], **_shapes()})
    assert sentence.partition(" ran in")[0] == f"`{statement}`"


@pytest.mark.parametrize(
    "statement",
    [
        "shapes.plot(x)",
        "shapes.set_scale(x)",  # its effect may be on the argument
        "time.sleep(1); os.makedirs('a'); print(1); random.shuffle(x); random.seed(0)",
        "os.environ.setdefault('A', 'b'); logging.root.setLevel(10); logging.disable(10)",
        "x.set_scale(3)",
        "def set_scale(n): pass",
        "os.environ['A'] = 'b'; x[0] = 3; beside.scales['log'] = 3",
        "beside.set_scale(3)",
    ],
)
def test_what_acts_on_its_arguments_or_travels_is_not_said(statement: str) -> None:
    names = {"_ih": ["", statement], **_shapes()}
    assert Registrations().notes([*sys.stdlib_module_names, "shapes", "beside"], names, statement, ["beside"]) == []


def test_a_function_of_the_notebook_tells_no_library() -> None:
    names = {"_ih": ["", "register(3)\nset_rate(1)"]}
    exec("def register(x): pass\ndef set_rate(x): pass", space := {"__name__": "__main__"})
    assert Registrations().notes(["main", "_main__", "__main__"], names | space, "register(3)") == []


def test_nothing_is_said_of_the_cells_that_other_tests_try() -> None:
    for name, cell in CELLS.items():
        tree = ast.parse("" if cell.is_of_kernel else cell.setup)
        stored = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        names: dict[str, object] = {node.id: object() for node in stored}
        for node in tree.body:
            modules = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if modules and all(module in sys.modules for module in modules):
                exec(compile(ast.Module([node], []), "<imports>", "exec"), names)
        used = {getattr(module, "__name__", "").partition(".")[0] for module in names.values()}
        assert Registrations().notes(used, {**names, "_ih": ["", cell.setup]}, cell.body) == [], name


def test_a_finder_of_the_notebook_is_named_where_a_module_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Finder", (), {"__module__": "__main__", "find_spec": lambda _s, name, *_: name == "made_up" or None})
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, kind()])
    cells = ["", "import sys\nsys.meta_path.append(Finder())", "import made_up"]
    error = ErrorInfo("ModuleNotFoundError", "No module named 'made_up'", [])
    assert is_put_by_hand("made_up")
    assert not is_put_by_hand("made_down")
    assert missed_sentence(error, cells, {}).startswith(
        "`sys.meta_path.append(Finder())` ran in cell 1 of the notebook"
    )


def test_memory_that_cannot_grow_has_a_way_out() -> None:
    error = ErrorInfo("RuntimeError", "Trying to resize storage that is not resizable", [])
    assert "`t = t.clone()`" in missed_sentence(error, ["", "t.resize_(9)"], {})
