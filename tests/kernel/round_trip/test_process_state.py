# ruff: noqa: E501 - a cell is one string
"""State of the process, and names that libraries look up in the frame of their caller: there and back."""

from __future__ import annotations

import csv
import gc
import locale
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from round_trip import Notebook


@pytest.fixture
def own_process_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is the notebook, too."""
    monkeypatch.delenv("TZ", raising=False)
    limit, was = csv.field_size_limit(), locale.setlocale(locale.LC_NUMERIC)
    thresholds, umask = gc.get_threshold(), os.umask(0o022)
    os.umask(umask)
    yield
    os.umask(umask)
    gc.set_threshold(*thresholds)
    gc.enable()
    csv.field_size_limit(limit)
    for name in {*csv.list_dialects()} - {"excel", "excel-tab", "unix"}:
        csv.unregister_dialect(name)
    locale.setlocale(locale.LC_NUMERIC, was)
    socket.setdefaulttimeout(None)
    os.environ.pop("TZ", None)
    time.tzset()


@pytest.mark.usefixtures("own_process_state")
def test_csv_locale_zone_and_timeout_are_as_in_a_plain_cell(nb: Notebook) -> None:
    nb.cell(
        "import csv, io, locale, os, socket, time\nos.environ['TZ'] = 'Asia/Tokyo'; time.tzset()\n"
        "csv.field_size_limit(10**9); csv.register_dialect('bars', delimiter='|')\n"
        "locale.setlocale(locale.LC_NUMERIC, 'C.UTF-8'); socket.setdefaulttimeout(7)"
    )
    asked = "(time.strftime('%H %Z', time.localtime(0)), csv.field_size_limit(), list(csv.reader(['a|b'], 'bars')), locale.setlocale(locale.LC_NUMERIC), socket.getdefaulttimeout())"
    nb.ok(f"seen = {asked}")
    assert nb.ns["seen"] == nb.cell(asked) == ("09 JST", 10**9, [["a", "b"]], "C.UTF-8", 7.0)
    nb.ok(
        "os.environ['TZ'] = 'America/New_York'; time.tzset(); csv.field_size_limit(77)\n"
        "csv.register_dialect('dots', delimiter='.'); locale.setlocale(locale.LC_NUMERIC, 'C'); socket.setdefaulttimeout(None)"
    )
    assert nb.cell(asked) == ("19 EST", 77, [["a", "b"]], "C", None)
    assert nb.cell("list(csv.reader(['a.b'], 'dots'))") == [["a", "b"]]


def test_the_first_weekday_travels_both_ways(nb: Notebook) -> None:
    nb.cell("import calendar\ncalendar.setfirstweekday(6)")
    try:
        nb.ok("seen = calendar.weekheader(2)[:2]\ncalendar.setfirstweekday(2)")
        assert nb.ns["seen"] == "Su"
        assert nb.cell("calendar.firstweekday()") == 2
    finally:
        nb.cell("calendar.setfirstweekday(0)")


@pytest.mark.usefixtures("own_process_state")
def test_umask_and_collector_are_as_in_a_plain_cell(nb: Notebook, tmp_path: Path) -> None:
    nb.cell("import gc, os\nos.umask(0o077); gc.disable(); gc.set_threshold(500, 5, 5)")
    asked = "gc.isenabled(), gc.get_threshold(), oct(os.stat(path).st_mode & 0o777)"
    nb.ok(f"path = {str(tmp_path / 'own')!r}\nopen(path, 'w').close()\nseen = {asked}")
    assert nb.ns["seen"] == (False, (500, 5, 5), "0o600")
    nb.ok("os.umask(0o027); gc.enable(); gc.set_threshold(600)")
    assert nb.cell("gc.isenabled(), gc.get_threshold(), oct(os.umask(0o027))") == (True, (600, 5, 5), "0o27")


def test_colour_maps_that_are_registered_travel(nb: Notebook) -> None:
    nb.cell(
        "import matplotlib\nfrom matplotlib.colors import ListedColormap\n"
        "matplotlib.colormaps.register(ListedColormap(['red', 'blue'], name='mine'), force=True)"
    )
    nb.ok(
        "import matplotlib.pyplot as plt\nfrom matplotlib.colors import ListedColormap\nseen = plt.get_cmap('mine').N\n"
        "matplotlib.colormaps.register(ListedColormap(['red', 'blue', 'green'], name='theirs'), force=True)"
    )
    assert nb.ns["seen"] == 2
    assert nb.cell("matplotlib.colormaps['theirs'].N") == 3


_FORMULAS = "import numpy as np, pandas as pd\nimport statsmodels.formula.api as smf\nshift, levels, unused = 1.0, ['b', 'a'], [1]\ndef bend(v): return np.log(v + shift)\ndf = pd.DataFrame({'x': np.arange(1.0, 21), 'g': list('ab') * 10})\ndf['y'] = 3 * np.log1p(df.x)\n"


def test_names_in_formulas_are_found_where_the_formula_is(nb: Notebook) -> None:
    nb.cell(_FORMULAS)
    trip = nb.ok("r = smf.ols('y ~ np.log(x)', data=df).fit().params.round(1).tolist()")
    assert len(nb.ns["r"]) == 2
    assert "unused" not in {info.name for info in trip.prepared.sent}
    nb.ok("fit = smf.ols('y ~ bend(x) + C(g, levels=levels)', data=df).fit()\nr = fit.params.round(1).tolist()")
    assert nb.ns["r"] == [0.0, 0.0, 3.0]
    nb.cell("def fitted(): return smf.ols('y ~ bend(x)', data=df).fit().params.round(1).tolist()")
    nb.ok("r = fitted()")
    assert nb.ns["r"] == [0.0, 3.0]


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ("r = db.sql('SELECT a FROM table JOIN other USING (a)')", {"db", "table", "other"}),
        ("r = db.evaluate('2 * a + b')", {"db", "a", "b"}),
        ("r = open('~/data.csv'), 'from table'", set()),
        ("r = db.ols(formula='~ a')", {"db", "a"}),
    ],
)
def test_names_in_texts_for_the_callers_frame(nb: Notebook, body: str, sent: set[str]) -> None:
    nb.cell("db, table, other, a, b = 'db', [1], [2], 3, 4")
    assert {info.name for info in nb.collect(body).sent} == sent


def test_a_log_file_of_the_notebook_is_said_once(nb: Notebook, tmp_path: Path) -> None:
    nb.cell(
        f"import logging\nhandler = logging.FileHandler({str(tmp_path / 'train.log')!r})\nlogging.root.addHandler(handler)"
    )
    try:
        said = "what GPU cells log is not in the notebook's log file `train.log`"
        assert said in nb.ok("x = 1").prepared.notes
        assert said not in nb.ok("x = 1").prepared.notes
    finally:
        nb.cell("logging.root.removeHandler(handler); handler.close()")


def test_a_handler_of_the_notebook_that_stays_is_said(nb: Notebook) -> None:
    nb.cell(
        "import logging.handlers, queue\nlog = logging.getLogger('h32.queued')\n"
        "log.addHandler(logging.handlers.QueueHandler(queue.Queue())); log.addHandler(logging.StreamHandler())"
    )
    try:
        notes = [each for each in nb.ok("x = 1").prepared.notes if "log" in each]
        assert notes == ["what GPU cells log is not in the notebook's QueueHandler of h32.queued"]
    finally:
        nb.cell("log.handlers.clear()")


def test_a_handler_of_a_librarys_class_that_a_cell_has_added_is_said(nb: Notebook) -> None:
    nb.cell("import logging\nfrom rich.logging import RichHandler\nlog = logging.getLogger('h32.rich')")
    nb.cell("log.addHandler(RichHandler()); logging.root.addHandler(log.handlers[0])")
    try:
        notes = [each for each in nb.ok("x = 1").prepared.notes if "log" in each]
        assert notes == [
            f"what GPU cells log is not in the notebook's RichHandler of {name}" for name in ("root", "h32.rich")
        ]
    finally:
        nb.cell("logging.root.removeHandler(log.handlers[0]); log.handlers.clear()")


@pytest.mark.parametrize("clock", ["time.process_time()", "time.thread_time_ns()"])
def test_clocks_of_a_process_are_said_to_be_the_cells_own(nb: Notebook, clock: str) -> None:
    nb.cell("import time")
    (note,) = nb.ok(f"t = {clock}").prepared.notes
    assert (
        note == f"`{clock.partition('.')[2]}` of a GPU cell counts in its process alone: take differences within a cell"
    )
    assert nb.ok("t = time.monotonic()").prepared.notes == []


def test_what_comes_back_of_a_thread_is_not_said_to_stay(nb: Notebook) -> None:
    nb.cell("from sympy.core.parameters import global_parameters")
    trip = nb.ok("global_parameters.evaluate = False")
    try:
        assert (trip.prepared.notes, trip.notes) == ([], [])
        assert nb.cell("global_parameters.evaluate") is False
    finally:
        nb.cell("global_parameters.evaluate = True")


def test_a_log_file_of_a_librarys_logger_is_said(nb: Notebook, tmp_path: Path) -> None:
    nb.cell(
        f"import logging, json\nhandler = logging.FileHandler({str(tmp_path / 'json.log')!r})\nlogging.getLogger('json.own').addHandler(handler)"
    )
    try:
        said = "what GPU cells log is not in the notebook's log file `json.log`"
        assert said in nb.ok("x = 1").prepared.notes
    finally:
        nb.cell("logging.getLogger('json.own').removeHandler(handler); handler.close()")


def test_what_cells_set_before_the_first_gpu_cell_is_not_taken_for_usual() -> None:
    """The extension is loaded when the kernel starts; all that knows settings only when it is needed."""
    code = (
        "import jupyter_gpu_release.kernel.extension, gc, os\nos.umask(0o077); gc.disable(); gc.set_threshold(500)\n"
        "from jupyter_gpu_release.serialization.process_state.library_settings import capture_settings\n"
        "found = capture_settings(); print(found['posix'], found['gc']['is on'], len(found['gc']))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "{'umask': '0077'} False 2\n"


@pytest.mark.usefixtures("own_process_state")
def test_a_collector_that_a_cell_switches_off_is_off(nb: Notebook) -> None:
    nb.ok("import gc\ngc.disable()")
    assert nb.cell("import gc\ngc.isenabled()") is False
    nb.ok("seen = gc.isenabled(); gc.enable()")
    assert nb.ns["seen"] is False
    assert nb.cell("gc.isenabled()") is True
