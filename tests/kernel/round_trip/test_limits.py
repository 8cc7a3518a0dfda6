# ruff: noqa: E501 - a cell is one string
"""What is held back, what cannot travel, local modules, packages that one side lacks."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from round_trip import Notebook, RankServer

from jupyter_gpu_release.errors import CannotSendError, GpuReleaseError, OptionError
from tests.cells.table import Cell


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankServer]:
    made = RankServer(("numpy",))
    yield made
    made.close()


@pytest.fixture
def nb(ranks: RankServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    book = tmp_path / "book"
    book.mkdir()
    monkeypatch.chdir(book)
    monkeypatch.syspath_prepend(str(book))
    yield Notebook(ranks, tmp_path)
    for name in [name for name, module in sys.modules.items() if str(book) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


# ----------------------------------------------------------------------------------------- secrets
def test_secrets_are_held_back(nb: Notebook) -> None:
    nb.cell(
        "hf_token = 'hf_quite_secret'\napi_key = b'k'\nPASSWORD = 'p'\nsort_key = len\npad_token = '<pad>'\ntokens = ['a']\ndef call(): return api_key"
    )
    prepared = nb.collect("print(hf_token, PASSWORD, sort_key, pad_token, tokens)\ncall()")
    assert {info.name for info in prepared.sent} == {"sort_key", "pad_token", "tokens", "call"}
    assert set(prepared.held_back) == {"hf_token", "PASSWORD", "api_key"}
    assert "`api_key` looks like a secret and is held back: --in +api_key sends it" in prepared.warnings
    assert b"hf_quite_secret" not in prepared.stream
    trip = nb.ok("r = call()", include_more=["api_key"])
    assert nb.ns["r"] == b"k"
    assert trip.prepared.held_back == []
    assert nb.collect("hf_token", include=["hf_token"]).held_back == []
    assert "NameError" in nb.gpu("print(hf_token)").error


# --------------------------------------------------------------------------------- cannot be sent
@pytest.mark.parametrize(
    ("setup", "body", "path", "reason"),
    [
        (
            "import threading\ncfg = {'lock': threading.Lock()}",
            "cfg",
            "cfg['lock']",
            "cannot pickle '_thread.lock' object",
        ),
        ("g = (i for i in range(3))", "next(g)", "g", "cannot pickle 'generator' object"),
        ("f = open('x.txt', 'w')", "f.write('a')", "f", "cannot pickle an open file ('x.txt')"),
        (
            "import sqlite3\nclass Db: pass\ndb = Db()\ndb.con = sqlite3.connect(':memory:')",
            "db",
            "db.con",
            "cannot pickle 'sqlite3.Connection' object",
        ),
        ("import socket\ns = socket.socket()\ndef use(): return s", "use()", "s", "cannot pickle 'socket' object"),
        ("l = []\nfor _ in range(100000): l = [l]", "len(l)", "l", "it is nested too deeply"),
        (
            "import threading\ndef mk():\n    k = threading.Lock()\n    return lambda: k\nh = mk()",
            "h()",
            "h (its enclosed k)",
            "cannot pickle",
        ),
        (
            "import threading, functools\np = functools.partial(print, threading.Lock())",
            "p()",
            "p.args[0]",
            "cannot pickle",
        ),
        (
            "import threading\nclass S:\n    __slots__ = ('k',)\ns = S()\ns.k = threading.Lock()",
            "s",
            "s.k",
            "cannot pickle",
        ),
    ],
)
def test_what_cannot_be_sent_is_named_before_queueing(
    nb: Notebook, setup: str, body: str, path: str, reason: str
) -> None:
    nb.cell(setup)
    with pytest.raises(CannotSendError) as caught:
        nb.collect(body)
    assert path in caught.value.message
    assert reason in caught.value.message
    assert "inside the cell" in caught.value.hint
    assert "--skip" in caught.value.hint
    for name in ("f", "s"):
        getattr(nb.ns.get(name), "close", lambda: None)()


def test_skip_is_the_way_out(nb: Notebook) -> None:
    nb.cell("import threading\nlock = threading.Lock()\na = 1")
    trip = nb.ok("b = a\ntry:\n    lock\nexcept NameError:\n    c = 'made inside'", skip=["lock"])
    assert (nb.ns["b"], nb.ns["c"]) == (1, "made inside")
    assert [info.name for info in trip.prepared.sent] == ["a"]


def test_a_name_that_is_only_perhaps_read_never_fails_the_cell(nb: Notebook) -> None:
    nb.cell("it = iter([1]).__iter__()\nit = (x for x in 'a')\nn = 3")
    trip = nb.ok("for i in range(n):\n    it = i\nprint(it)")
    assert trip.output == "2\n"
    assert any("`it`" in note and "not sent" in note for note in trip.prepared.notes)


def test_history_stays_at_home(nb: Notebook) -> None:
    with pytest.raises(CannotSendError, match="history, it stays in the kernel"):
        nb.collect("Out[3]")
    trip = nb.ok("a = get_ipython() is not None")
    assert nb.ns["a"]
    assert trip.prepared.sent == []


def test_a_large_array_that_has_travelled_is_not_resized_in_place(nb: Notebook) -> None:
    nb.cell("import numpy as np\nx = np.arange(10_000.0)")
    assert "it does not own its data" in nb.gpu("x.resize(20_000)").error
    nb.ok("x = np.resize(x, 20_000)")
    with pytest.raises(ValueError, match="it does not own its data"):
        nb.cell("x.resize(2)")


@pytest.mark.parametrize("name", ["nope", "In", "get_ipython"])
def test_an_unknown_name_in_in(nb: Notebook, name: str) -> None:
    with pytest.raises(OptionError, match=f"--in {name}"):
        nb.collect("1", include=[name])


@pytest.mark.parametrize(
    ("body", "line"), [("x = (", 2), ("a = 1\nreturn a", 3), ("def f(:\n pass", 2), ("%time x = (", 2)]
)
def test_a_syntax_error_is_found_here_with_the_cells_own_line(nb: Notebook, body: str, line: int) -> None:
    if body.startswith("%"):
        nb.collect(body)  # the magic finds it when it runs
        return
    with pytest.raises(SyntaxError) as caught:
        nb.collect(body)
    assert caught.value.lineno == line


def test_streams_loggers_and_weak_references(nb: Notebook) -> None:
    nb.cell(
        "import sys, logging, weakref\nclass A: pass\na = A()\nr = weakref.ref(a)\nws = weakref.WeakSet([a])\n"
        "wv = weakref.WeakValueDictionary(k=a)\nlog = logging.getLogger('x')\nout = {'f': sys.stdout}\nb = A()\ngone = weakref.ref(b)\ndel b"
    )
    nb.ok(
        "a.n = r() is a and a in ws and wv['k'] is a and log.name == 'x' and gone() is None\nprint('seen', file=out['f'])"
    )
    assert nb.ns["a"].n
    assert nb.ns["r"]() is nb.ns["a"]


# ---------------------------------------------------------------------------------------- modules
def test_imports_of_earlier_cells_are_there(nb: Notebook) -> None:
    nb.cell(
        "import numpy as np\nimport concurrent.futures\nfrom os import path as p\nimport xml.etree.ElementTree as ET\nimport xml\ndef f(): return xml.etree.ElementTree.Element('a').tag"
    )
    nb.ok("r = np.arange(3).sum(), p.join('a', 'b'), concurrent.futures.Future is not None, f()")
    assert nb.ns["r"] == (3, "a/b", True, "a")


def test_modules_imported_in_the_cell_are_not_imported_here_before_use(nb: Notebook) -> None:
    sys.modules.pop("wave", None)
    trip = nb.ok("import wave\nimport numpy as np\nx = 1")
    assert trip.results.keys() == {"x"}
    assert "wave" not in sys.modules
    assert "wave" in repr(nb.ns["wave"])
    nb.ok("y = wave.Error.__name__")
    assert nb.ns["y"] == "Error"
    assert nb.cell("wave.Error").__name__ == "Error"
    assert nb.ns["wave"] is sys.modules["wave"]


def test_local_modules_are_shipped_and_edited_ones_again(nb: Notebook) -> None:
    Path("mylib.py").write_text(
        "from helpers_here import two\nFACTOR = 1\nclass Net:\n    def f(self): return FACTOR * two()\n"
    )
    Path("helpers_here.py").write_text("def two():\n    from pack import inner\n    return inner.VALUE\n")
    Path("pack").mkdir()
    Path("pack/__init__.py").write_text("import of_first\n")
    Path("pack/inner.py").write_text("from . import config\nVALUE = 2\n")
    Path("pack/config.py").write_text("import of_last\n")
    Path("of_first.py").write_text("")
    Path("of_last.py").write_text("")
    Path("pack/table.json").write_text("{}")
    Path("pack/.hidden").mkdir()
    Path("pack/.hidden/copy.py").write_text("")
    Path("unrelated.py").write_text("")
    nb.cell("import mylib\nfrom mylib import Net\nnet = Net()")
    trip = nb.ok("r = net.f()\nimport pack.inner\nq = mylib.__file__")
    assert nb.ns["r"] == 2
    assert os.getcwd() not in nb.ns["q"]
    assert set(trip.prepared.modules) == {
        "mylib.py",
        "helpers_here.py",
        "pack/__init__.py",
        "pack/inner.py",
        "pack/config.py",
        "pack/table.json",
        "of_first.py",
        "of_last.py",
    }
    assert not {"mylib", "helpers_here", "pack"} & set(trip.prepared.imports)
    assert type(nb.ns["net"]) is nb.ns["Net"]
    Path("mylib.py").write_text("FACTOR = 50\nclass Net:\n    def f(self): return FACTOR\n")
    nb.ok("r = net.f()")
    assert nb.ns["r"] == 50


def test_modules_on_an_added_path(nb: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "tool.py").write_text("X = 5")
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    nb.cell("from deep import tool")
    trip = nb.ok("r = tool.X")
    assert nb.ns["r"] == 5
    assert str(tmp_path / "src") in trip.prepared.sys_path
    assert list(trip.prepared.modules) == ["deep/tool.py"]


def test_a_folder_behind_the_installed_packages_stays_there(
    nb: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = tmp_path / "first", tmp_path / "last"
    for folder in (first, last):
        folder.mkdir()
        (folder / "certifi.py").write_text("")
        (folder / f"only_{folder.name}.py").write_text("")
    for module in ("certifi", "certifi.core"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path, str(last)])
    prepared = nb.collect("import certifi, only_last")
    assert prepared.sys_path[-prepared.sys_path_behind :][-1] == str(last)
    assert list(prepared.modules) == ["only_last.py"]
    monkeypatch.setattr(sys, "path", [str(first), *sys.path])
    prepared = nb.collect("import certifi, only_first")
    assert prepared.sys_path[0] == str(first)
    assert sorted(prepared.modules) == ["certifi.py", "only_first.py"]


def test_the_folder_that_comes_first_on_the_path_has_the_module(
    nb: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libs = tmp_path / "libs"
    libs.mkdir()
    for folder in (libs, Path()):
        for name in ("shadow", "shaded"):
            (folder / f"{name}.py").write_text(f"V = {folder.name!r}")
    monkeypatch.setattr(sys, "path", [str(libs), "", *sys.path])
    assert nb.collect("import shadow").sys_path[:2] == [str(libs), ""]
    nb.ok("import shadow\nr = shadow.V")
    assert nb.ns["r"] == "libs"
    monkeypatch.setattr(sys, "path", ["", *(each for each in sys.path if each)])
    nb.ok("import shaded\nr = shaded.V")
    assert nb.ns["r"] == ""


def test_required_packages(nb: Notebook) -> None:
    nb.cell("import numpy as np\nfrom sklearn.preprocessing import StandardScaler\nscaler = StandardScaler()")
    body = (
        "import torch.nn as nn, os\nfrom polars import DataFrame\nif 0:\n    import conditional\ntry:\n    import optional\n"
        "except ImportError:\n    optional = None\ndef later():\n    import inside\nnp.zeros(1)\nscaler"
    )
    assert nb.collect(body).imports == ["numpy", "polars", "sklearn", "torch"]
    assert nb.collect("%pip install zork\nimport zork").imports == []


def test_a_package_that_the_cluster_lacks_is_named(nb: Notebook) -> None:
    ghost = types.ModuleType("ghostlib")
    ghost.__spec__ = ModuleSpec("ghostlib", None)  # as of an import
    exec("class Thing: pass\nthing = Thing()", ghost.__dict__)
    sys.modules["ghostlib"] = ghost
    try:
        nb.cell("import ghostlib\nbox = [ghostlib.thing]\nfrom ghostlib import Thing")
        trip = nb.gpu("box")
        assert "LoadError: `box` cannot be rebuilt on the node: it needs the module ghostlib" in trip.error
        assert "--skip box" in trip.error
        assert "ghostlib" in trip.prepared.imports
        assert "`ghostlib` is the module ghostlib, which cannot be imported" in nb.gpu("ghostlib").error
        ghost.__spec__ = None  # as of a module that a statement made
        assert nb.gpu("box").prepared.imports == []
    finally:
        del sys.modules["ghostlib"]


GHOST = (
    "import sys, types\nm = types.ModuleType('ghostlib')\nexec('class Thing:\\n    def __init__(self, n): self.n = n\\n"
    "class Rebuilt(Thing):\\n    @classmethod\\n    def again(cls): return cls(1)\\n"
    "    def __reduce__(self): return self.again, ()\\n"
    "def make(n): return Thing(n)', m.__dict__)\nm.__spec__ = __import__('importlib.machinery').machinery.ModuleSpec('ghostlib', None)\n"
    "sys.modules['ghostlib'] = m"
)


def test_values_of_packages_that_the_kernel_lacks(nb: Notebook) -> None:
    cell = "import ghostlib\nthing = ghostlib.make(5)\nbound = ghostlib.Rebuilt(1)\nlst = [1, thing]\nplain = 2"
    trip = nb.ok(cell, hardware=GHOST)
    assert nb.ns["plain"] == 2
    assert any("`thing` is a placeholder here: no module named ghostlib" in note for note in trip.notes)
    assert "ghostlib.Thing" in repr(nb.ns["thing"])
    with pytest.raises(ModuleNotFoundError, match=r"(?s)^ghostlib.Thing object .* no n here .*no module .*gpu_train"):
        nb.ns["thing"].n  # noqa: B018
    with pytest.raises(GpuReleaseError, match=r"^ghostlib.Rebuilt object"):  # shown without frames of ours
        nb.ns["bound"].n  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        nb.cell("ghostlib.make")
    assert nb.ns["lst"][1] is nb.ns["thing"]
    nb.ok("r = thing.n, lst[1] is thing, type(thing).__name__", hardware=GHOST)
    assert nb.ns["r"] == (5, True, "Thing")


def test_a_package_finds_the_environment_that_the_cell_made_for_it(nb: Notebook, tmp_path: Path) -> None:
    (tmp_path / "picky.py").write_text("import os\nmode = os.environ['PICKY_MODE']\nclass Thing:\n    pass\n")
    nb.cell(f"import sys; sys.path.append({str(tmp_path)!r})")
    trip = nb.ok("import os\nos.environ['PICKY_MODE'] = 'jax'\nimport picky\nthing = picky.Thing()")
    assert not trip.notes
    assert sys.modules["picky"].mode == "jax"
    assert type(nb.ns["thing"]).__name__ == "Thing"
    nb.cell("import os; del os.environ['PICKY_MODE']; del sys.modules['picky']")


# ------------------------------------------------------------------------------------------- weight
def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nimport jupyter_gpu_release.kernel.namespace.namespace\n"
        "heavy = {'numpy', 'torch', 'pandas', 'ray', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


def test_a_plain_value_imports_nothing_heavy_either(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom round_trip import make_shell\nfrom jupyter_gpu_release.kernel.namespace.namespace import Namespace\n"
        "shell = make_shell()\nshell.run_cell('a = [1]', store_history=True)\nprepared = Namespace(shell).collect('a')\n"
        "assert [i.name for i in prepared.sent] == ['a']\n"
        "heavy = {'numpy', 'torch', 'pandas', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    )
    path = os.pathsep.join([str(Path(__file__).parents[3]), str(Path(__file__).parents[2] / "harness")])
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})


def test_the_notebook_goes_where_a_cell_went(nb: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tmp_path / "before"
    for folder in (before / "sub", tmp_path / "run" / "sub"):
        folder.mkdir(parents=True)
    nb.cell(f"%cd -q {before}")
    nb.cell("import os")
    went = nb.gpu("os.chdir('sub'); 1/0")
    assert "ZeroDivisionError" in went.error
    assert Path.cwd() == before / "sub"
    nb.ok("%cd -q ..")
    assert Path.cwd() == before
    nb.ok("with __import__('contextlib').chdir('sub'): pass")
    assert Path.cwd() == before
    nb.cell("%cd -q sub")
    trip = nb.ok(f"os.environ['GPU_RUN_DIR'] = {str(tmp_path / 'run')!r}; os.chdir({str(tmp_path / 'run' / 'sub')!r})")
    (note,) = trip.notes
    assert note.startswith("the notebook stays in its folder, the cell went to")
    assert note.endswith("that is the run's own")
    with monkeypatch.context() as patch:
        patch.setattr(nb.names, "apply", partial(nb.names.apply, in_turn=False))
        (note,) = nb.ok("os.chdir('..')").notes
    assert note.endswith("that was in the background")
    assert Path.cwd() == before / "sub"
    trip = nb.ok("os.chdir('..')\nos.stat = lambda _: type('Stat', (), {'st_ino': 1})")  # as on another machine
    assert [note for note in trip.notes if note.endswith(f"`{before}`: there is no such folder here")]
    assert Path.cwd() == before / "sub"


_FINALIZERS = """
import weakref
class Owner: pass
one, two, log = Owner(), Owner(), []
one.end = weakref.finalize(one, log.append, 1)
f, g = (weakref.finalize(two, log.append, number) for number in (2, 3))
"""


def test_finalizers_of_the_notebook_are_alive_in_a_cell_until_it_calls_or_detaches_them(nb: Notebook) -> None:
    body = "alive = one.end.alive, f.alive; one.n = 3; f(); detached = g.detach()[2]; g_is_alive = g.alive"
    asked = "alive, log, one.end.alive, one.end.peek()[0] is one, f.alive, g.alive, g_is_alive, detached"
    nb.expect_as_plain(Cell(_FINALIZERS, body, asked))


def test_a_finalizer_that_a_cell_makes_is_over_with_its_process(nb: Notebook) -> None:
    nb.cell("import weakref\nlog = []\nclass Owner: pass")
    trip = nb.ok("owner = Owner(); end = weakref.finalize(owner, log.append, 1)")
    assert trip.notes == ["`end` came back without its `weakref.finalize`, which is over with the cell's process"]
    with pytest.warns(RuntimeWarning, match="over with the process of the cell"):
        nb.cell("end()")
    assert nb.ns["log"] == []


def test_a_directory_of_the_notebook_is_removed_by_the_notebook_alone(nb: Notebook) -> None:
    nb.cell("import os, tempfile\nfolder, other = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()")
    trip = nb.ok("open(os.path.join(folder.name, 'file'), 'w').close(); other.cleanup(); folder.used = True")
    assert trip.notes == []
    there = nb.cell(
        "os.listdir(folder.name), folder._finalizer.alive, os.path.exists(other.name), other._finalizer.alive"
    )
    assert there == (["file"], True, False, False)
    nb.cell("folder.cleanup()")


def test_handlers_and_filters_of_loggers_that_are_the_notebooks_work_in_a_cell(nb: Notebook) -> None:
    nb.expect_as_plain(
        Cell(
            "import logging\nlines = []\nclass Keep(logging.Handler):\n    def emit(self, record): lines.append(self.format(record))\n"
            "def filtered(record): lines.append('asked'); return 'no' not in record.msg\nlog = logging.getLogger('held.by'); log.propagate = False\n"
            "keep = Keep(); keep.setFormatter(logging.Formatter('%(levelname)s %(message)s')); log.addHandler(keep); log.addFilter(filtered)",
            "class Count(logging.Handler):\n    n = 0\n    def emit(self, record): self.n += 1\ncount = Count(); log.addHandler(count); log.addHandler(keep); log.warning('in'); log.warning('no')",
            "log.warning('out'), lines, log.handlers == [keep, count], count.n, log.filters == [filtered]",
            "log.handlers.clear(); log.filters.clear()",
        )
    )
