# ruff: noqa: E501 - a cell is one string
"""What was set in a module beside the notebook is so in a GPU cell, and the other way round."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from round_trip import Notebook, RankServer

from jupyter_gpu_release.serialization.process_state.local_modules import ImportWatch
from jupyter_gpu_release.submission.modules import AwayModules

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
    for name in ("beside", "user", "plugin", "helper"):
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


def test_functions_remember_by_their_defaults_and_attributes(nb: Notebook) -> None:
    Path("helper.py").write_text(
        "import functools\ndef memo(x, seen={}, *, log=[]):\n    seen[x] = 1; log.append(x); return len(seen), len(log)\n"
        "def count():\n    count.n += 1; return count.n\ncount.n = 0\n"
        "def counted(f):\n    @functools.wraps(f)\n    def w(*a):\n        w.calls += 1; return f(*a)\n    w.calls = 0\n    return w\n"
        "class K:\n    def __init__(self, tags=[]): tags.append(1); self.tags = tags\n"
        "    @counted\n    def m(self): return 1\n"
        "    @staticmethod\n    def s(seen=[]): seen.append(1); return len(seen)\n"
        "    @classmethod\n    def c(cls, seen=[]): seen.append(1); return len(seen)\n"
        "    @property\n    def p(self, seen=[]): seen.append(1); return len(seen)\n"
    )
    all_once = "helper.memo(len(helper.memo.__defaults__[0])), helper.count(), len(k.tags), k.m(), helper.K.m.calls, k.s(), k.c(), k.p"
    nb.cell("import helper; k = helper.K(); first = helper.memo.__defaults__[0]; tags = k.tags")
    nb.cell(f"a = {all_once}")
    nb.ok(f"other = helper.K(); b = {all_once}")
    nb.cell(f"c = {all_once}")
    made = [[((n, n), n, 1 + (n > 1), 1, n, n, n, n)] for n in (1, 2, 3)]
    assert [[nb.ns[name]] for name in "abc"] == made
    assert nb.ns["helper"].memo.__defaults__[0] is nb.ns["first"]
    assert nb.ns["helper"].K.__init__.__defaults__[0] is nb.ns["tags"] is nb.ns["other"].tags
    trip = nb.ok("x = helper.K.s.__defaults__")
    assert not trip.notes
    assert list(trip.results) == ["x"]


def test_functions_and_methods_remember_by_the_variables_around_them(nb: Notebook) -> None:
    Path("around.py").write_text(
        "import functools, threading\n"
        "def counted(f):\n    n, seen, lock = 0, [], threading.Lock()\n    @functools.wraps(f)\n"
        "    def w(*a):\n        nonlocal n\n        with lock: n += 1; seen.append(n)\n        f(*a)\n        return n, len(seen)\n    return w\n"
        "@counted\n@counted\ndef f(): pass\n"
        "class K:\n    @counted\n    def m(self): pass\n    @staticmethod\n    @counted\n    def s(): pass\n"
        "    @classmethod\n    @counted\n    def c(cls): pass\n    @property\n    @counted\n    def p(self): pass\n"
        "class Sub(K):\n    def m(self): return super().m()\n"
    )
    all_once = "around.f(), around.f.__wrapped__(), k.m(), k.s(), k.c(), k.p"
    nb.cell("import around; k = around.Sub(); seen = around.f.__closure__[-1].cell_contents, around.counted")
    nb.cell(f"a = {all_once}")
    trip = nb.ok(f"b = {all_once}")
    nb.cell(f"c = {all_once}")
    made = [((n, n), (2 * n, 2 * n), (n, n), (n, n), (n, n), (n, n)) for n in (1, 2, 3)]
    assert ([nb.ns[name] for name in "abc"], trip.notes) == (made, [])
    assert nb.ns["around"].f.__closure__[-1].cell_contents is nb.ns["seen"][0]


def test_cached_functions_remember_and_context_variables_have_their_values(nb: Notebook) -> None:
    Path("helper.py").write_text(
        "import contextvars, functools\nlevel = contextvars.ContextVar('level', default=0)\n"
        "@functools.lru_cache(maxsize=4)\ndef load(x): return [x]\n"
        "class Loader:\n    @functools.cache\n    def get(self): return [1]\n"
        "    @staticmethod\n    @functools.cache\n    def made(x): return [x]\none = Loader()\n"
    )
    nb.cell(
        "import helper\nfrom helper import load\nfirst, got, made = load(1), helper.one.get(), helper.Loader.made(1)\n"
        "level = helper.level; _ = level.set(3)"
    )
    nb.ok(
        "seen = load(1) is first, helper.one.get() is got, helper.one.made(1) is made, helper.level.get()\n"
        "helper.load(2).append(7); first.append(8); got.append(9); made.append(0); _ = helper.level.set(4)"
    )
    ns, helper = nb.ns, sys.modules["helper"]
    assert ns["seen"] == (True, True, True, 3)
    assert helper.load is ns["load"]
    assert (helper.load(1) is ns["first"], helper.load(1), helper.load(2)) == (True, [1, 8], [2, 7])
    assert helper.load.cache_info()[:2] == (4, 2)
    assert (helper.one.get() is ns["got"], ns["got"], helper.one.made(1) is ns["made"], ns["made"]) == (
        (True, [1, 9], True, [1, 0])
    )
    assert helper.level is ns["level"]
    assert helper.level.get() == 4


_CLASSES = """
import abc, collections, dataclasses, enum, functools, threading, traitlets
own_lock = threading.Lock()
class Trait(traitlets.HasTraits): depth = traitlets.Int(3)
def timed(method): return lambda self: method(self)
class Meta(type):
    made = {}
    def __call__(cls, *arguments):
        if not hasattr(cls, "_one"): cls._one = super().__call__(*arguments)
        return cls._one
class Single(metaclass=Meta): pass
class Borg:
    _shared = {}
    def __init__(self): self.__dict__ = self._shared
class Base(abc.ABC):
    count, instances = 0, []
    limits = {"low": 1}
    lock = threading.Lock()
    twice = staticmethod(lambda x: 2 * x)
    class Config: depth = 1
    def __init__(self):
        Base.count += 1
        Base.instances.append(self)
    def name(self): return "base"
    @timed
    def slow(self): return Base.limits["low"]
    @staticmethod
    def make(): return "made"
    @property
    def half(self): return 1
class Color(enum.Enum):
    RED = 1
class Bits(enum.Flag):
    A, B = 1, 2
@dataclasses.dataclass(slots=True)
class Item: a: int
@dataclasses.dataclass
class Part: a: int = 1
Pair = collections.namedtuple("Pair", "x y")
"""


def test_state_of_classes_goes_in_and_comes_back(nb: Notebook) -> None:
    Path("helper.py").write_text(_CLASSES)
    nb.cell(
        "import helper\nfrom helper import Base, Single, Borg\nm = Base(); s = Single(); Borg().v = 1\n"
        "Base.Config.depth = 2; helper.Meta.made['a'] = s; Base.kept = kept = [1]\nBase.gone = 1; low = 4\n"
        "Base.hello = lambda self: low; Base.make = staticmethod(lambda: 'mine'); items = Base.instances"
    )
    trip = nb.ok(
        "seen = (Base.count, len(Base.instances), items is Base.instances, Base.instances[0] is m, Single() is s, Borg().v,\n"
        "    Base.Config.depth, helper.Meta.made['a'] is s, m.hello(), Base.make(), Base.kept is kept)\n"
        "m2 = Base(); Base.tag = 'gpu'; Borg().v = 2; kept.append(2); Base.name = lambda self: 'patched'; del Base.gone\n"
        "Base.Config.depth = 3; Base.half = property(lambda self: low + 1); Base.limits['low'] = 0"
    )
    ns, helper = nb.ns, sys.modules["helper"]
    assert ns["seen"] == (1, 1, True, True, True, 1, 2, True, 4, "mine", True)
    base = helper.Base
    assert base is ns["Base"]
    assert (base.count, base.tag, base.Config.depth, helper.Borg().v) == (2, "gpu", 3, 2)
    assert base.instances is ns["items"]
    assert [base.instances[0] is ns["m"], base.instances[1] is ns["m2"]] == [True, True]
    assert (ns["m"].name(), ns["m"].half, ns["m"].slow(), hasattr(base, "gone")) == ("patched", 5, 0, False)
    assert base.kept is ns["kept"] == [1, 2]
    assert (trip.notes, trip.prepared.notes, trip.prepared.warnings) == ([], [], [])
    assert nb.ok("again = Base.count, m.name(), hasattr(Base, 'gone')").notes == []
    assert ns["again"] == (2, "patched", False)


def test_what_importing_makes_of_classes_stays(nb: Notebook) -> None:
    Path("helper.py").write_text(_CLASSES)
    nb.cell(
        "import helper\nold = {name: dict(vars(kind)) for name, kind in vars(helper).items() if isinstance(kind, type)}"
    )
    trip = nb.ok("r = helper.Bits.A | helper.Bits.B, helper.Part(), helper.Item(2), helper.Pair(1, 2), helper.Color(1)")
    assert (trip.notes, trip.prepared.notes, list(trip.results)) == ([], [], ["r"])
    helper = sys.modules["helper"]
    for name, before in nb.ns["old"].items():
        now = vars(vars(helper)[name])
        assert [own for own in now if now[own] is not before.get(own)] == []


def test_a_definition_that_a_cell_puts_back_is_back(nb: Notebook) -> None:
    Path("helper.py").write_text(_CLASSES + "def load(): return 'file'\n")
    nb.cell(
        "import helper\nbefore = helper.load, helper.Base.name; m = helper.Base()\n"
        "helper.load = lambda: 'mine'; helper.Base.name = lambda self: 'mine'"
    )
    nb.ok("seen = helper.load(), m.name()\nhelper.load, helper.Base.name = before")
    helper = sys.modules["helper"]
    assert nb.ns["seen"] == ("mine", "mine")
    assert (helper.load, helper.Base.name) == nb.ns["before"]


def test_state_of_classes_of_a_module_that_only_cells_import_comes_along(nb: Notebook) -> None:
    Path("helper.py").write_text(_CLASSES + "Base.gone = 1\n")
    nb.ok("import helper\nhelper.Base.count += 1; helper.Base.tag = [1]; del helper.Base.gone; helper.Base.make = 5")
    assert "helper" not in sys.modules
    nb.ok("import helper\nr = helper.Base.count, helper.Base.tag, hasattr(helper.Base, 'gone'), helper.Base.make")
    assert nb.ns["r"] == (1, [1], False, 5)
    nb.cell("import helper")
    base = sys.modules["helper"].Base
    assert (base.count, base.tag, hasattr(base, "gone"), base.make) == (1, [1], False, 5)


def test_a_folder_of_installed_packages_is_nobodys_own(
    nb: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where ``PYTHONPATH`` names one: its modules are libraries, whose source and state do not travel."""
    site = tmp_path / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "plugin.py").write_text("rate = 1\n")
    monkeypatch.syspath_prepend(str(site))
    nb.cell("import plugin, beside\nvars(plugin)['rate'] = 2\nbeside.rate = 3")
    prepared = nb.collect("r = plugin.rate, beside.rate")
    assert nb.names.input_capture.local_modules == ["beside"]
    assert prepared.modules.keys() == {"beside.py"}
    assert str(site) in prepared.sys_path  # nodes that see the folder import from it
    assert nb.collect("import plugin, lacking").imports == ["lacking"]
    assert nb.collect("plugin.rate = 4").notes == [
        "plugin.rate: set in this cell only, what is set in a library stays in its process"
    ]
    nb.ok("r = beside.rate")
    assert nb.ns["r"] == 3


def test_what_did_not_change_stays_and_what_cannot_go_is_left(nb: Notebook) -> None:
    nb.cell(
        "import beside, threading\nbeside.lock = threading.Lock()\nbeside.big = b'x' * (3 << 20)\nbefore = beside.log, beside.lock"
    )
    trip = nb.ok("r = beside.lock, len(beside.big), beside._ABSENT is beside.add.__defaults__[0]")
    assert nb.ns["r"] == (None, 0, True)
    assert sorted(trip.prepared.notes) == [
        "`beside.big` was set in the notebook and is not so in the cell: 3 MiB",
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


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_module_that_a_cell_loads_again_is_said(nb: Notebook, is_edited: bool) -> None:
    nb.cell("import importlib, beside, user, fractions")
    if is_edited:
        Path("beside.py").write_text(_SOURCE.replace('"own"', '"edited"'))
    trip = nb.ok("importlib.reload(beside); importlib.reload(fractions)\nr = beside.helper()")
    assert nb.ns["r"] == ("edited" if is_edited else "own")
    assert [note for note in trip.notes if "again" in note] == [
        "`beside`: loaded again in this cell only: if the notebook needs it, reload it in a plain cell, too"
    ]
    nb.cell("importlib.reload(beside)")
    trip = nb.ok("r = beside.helper()")
    assert nb.ns["r"] == ("edited" if is_edited else "own")
    assert trip.notes == []


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


@pytest.mark.parametrize(
    "puts",
    [
        "def put_into(cls):\n    def put(f):\n        setattr(cls, f.__name__, f)\n        return f\n    return put\n"
        "@put_into(fractions.Fraction)\ndef shown(self): return f'{float(self):.0%}{SIGN}'",
        "for name, f in {'shown': lambda self: f'{float(self):.0%}{SIGN}'}.items():\n    setattr(Fraction, name, f)",
        "def prepare():\n    Fraction.shown = property(lambda self: lambda: f'{float(self):.0%}{SIGN}')\nprepare()",
        "setattr(fractions, 'show', lambda x: f'{float(x):.0%}{SIGN}')\nFraction.shown = lambda self: fractions.show(self)",
    ],
    ids=["a decorator", "a loop", "a function", "a module"],
)
def test_what_a_helper_puts_into_a_class_of_a_library_goes_in(nb: Notebook, puts: str) -> None:
    nb.cell(f"import fractions\nfrom fractions import Fraction\nSIGN = '!'\nhalf = Fraction(1, 2)\n{puts}")
    try:
        nb.ok("r = half.shown()")
        assert nb.ns["r"] == "50%!"
    finally:
        nb.cell("del Fraction.shown; vars(fractions).pop('show', None)")


def test_what_functions_that_a_cell_calls_set_in_libraries_is_said(nb: Notebook) -> None:
    nb.cell("import json, fractions\ndef patch(): inner()\ndef inner(): json.set_here = 1\ndef idle(): json.never = 1")
    trip = nb.ok("def here(): fractions.Fraction.set_here = len\nhere(); patch(); kept = idle")
    said = "fractions.Fraction.set_here, json.set_here: set in this cell only, what is set in a library stays in its process"
    assert trip.prepared.notes == [said]


def test_what_is_set_in_an_object_that_a_library_has_goes_in(nb: Notebook) -> None:
    nb.cell("import networkx as nx\nfrom networkx import config\nbefore = config.cache_converted_graphs")
    nb.cell("config.cache_converted_graphs = not before; nx.config.fallback_to_nx = True")
    try:
        nb.ok("seen = nx.config.cache_converted_graphs is not before, nx.config.fallback_to_nx")
        assert nb.ns["seen"] == (True, True)
    finally:
        nb.cell("config.cache_converted_graphs = before; nx.config.fallback_to_nx = False")


def test_what_cannot_be_set_in_a_library_there_is_said(nb: Notebook) -> None:
    """The node may have another version of it, which lacks the object."""
    nb.cell("import fractions, types\nsetattr(fractions, 'rules', types.SimpleNamespace(limit=1))")
    try:
        nb.cell("fractions.rules.limit = 5")
        trip = nb.ok("import fractions\nx = 1")
        (said,) = [note for note in trip.notes if "rules" in note]
        assert said.startswith("`fractions.rules.limit` was set in the notebook and is not so in the cell: Attribute")
    finally:
        nb.cell("del fractions.rules")


def test_what_functions_put_into_libraries_read_goes_in(nb: Notebook) -> None:
    nb.cell("import fractions, json, math\nkept = json.dumps, math.floor, fractions.Fraction.limit_denominator")
    nb.cell(
        "dumps_before = json.dumps\njson.dumps = lambda *a, **k: dumps_before(*a, sort_keys=KEYS, **k)\nKEYS = True\n"
        "floor_before = math.floor\nmath.floor = lambda x: floor_before(x) + shift()\nby = 10\ndef shift(): return by\n"
        "fractions.Fraction.limit_denominator = lambda self, n: (len(lock), n)\nimport threading\nlock = threading.Lock()"
    )
    try:
        nb.ok("import json, math\nr = json.dumps({'b': 1, 'a': 2}), math.floor(1.5)\nbefore = [floor_before]")
        assert nb.ns["r"] == ('{"a": 2, "b": 1}', 11)
        assert nb.ns["before"][0] is nb.ns["floor_before"] is nb.ns["kept"][1]
        trip = nb.gpu("import fractions\nfractions.Fraction(1, 3).limit_denominator(2)")
        assert trip.error == "NameError: name 'lock' is not defined"
        assert "`lock`: cannot pickle '_thread.lock' object (not sent: the cell may not need it)" in trip.prepared.notes
        nb.cell("lock = b'x' * (3 << 20)")
        trip = nb.gpu(
            "import fractions, json\nr = json.dumps({'b': 1, 'a': 2})\nfractions.Fraction(1, 3).limit_denominator(2)"
        )
        assert trip.error == "NameError: name 'lock' is not defined"
        assert "`lock`: it has 4 MiB (not sent: the cell may not need it)" in trip.prepared.notes
    finally:
        nb.cell("json.dumps, math.floor, fractions.Fraction.limit_denominator = kept")


@pytest.mark.parametrize("registers", ["cell", "ok"], ids=["plain", "GPU"])
def test_what_is_registered_with_classes_of_pandas_is_there_in_both(nb: Notebook, registers: str) -> None:
    nb.cell("import pandas as pd\ndf = pd.DataFrame({'a': [1, 3]}); by = 1")
    setup = (
        "import pandas as pd\nfrom tqdm import tqdm\n@pd.api.extensions.register_dataframe_accessor('of_ours')\n"
        "class Ours:\n    def __init__(self, frame): self.frame = frame\n    def top(self): return self.frame.a.max() + by\n"
        "@pd.api.extensions.register_series_accessor('also_ours')\nclass Also(Ours): pass\ntqdm.pandas(disable=True)"
    )
    ask = "r = df.of_ours.top(), df.a.progress_apply(lambda x: x * 10).tolist(), 'of_ours' in dir(df), pd.Series.also_ours is Also"
    try:
        getattr(nb, registers)(setup)
        nb.cell(ask)
        assert nb.ns["r"] == (4, [10, 30], True, True)
        nb.cell("by = 2")
        trip = nb.ok(ask)
        assert nb.ns["r"] == (5, [10, 30], True, True)
        assert (trip.notes, [each for each in trip.results if ":" in each]) == ([], [])
    finally:
        nb.cell(
            "import pandas as pd\n"
            "for kind in (pd.DataFrame, pd.Series, *(getattr(pd.core.groupby, f'{name}GroupBy') for name in ('', 'Series', 'DataFrame'))):\n"
            "    for name in [each for each in vars(kind) if each.startswith('progress_') or each.endswith('_ours') or each == 'of_ours']:\n"
            "        delattr(kind, name); getattr(kind, '_accessors', set()).discard(name)"
        )


def test_an_attribute_of_a_value_without_a_truth_value_is_set_as_ever(nb: Notebook) -> None:
    nb.cell("import pandas as pd\ndf = pd.DataFrame({'a': [1], 'b': [2]})\ndf.index = [7]")
    nb.ok("df.columns = ['c', 'd']")
    assert list(nb.ns["df"].columns) == ["c", "d"]


def test_what_a_cell_sets_in_a_module_that_only_it_imports_comes_back(nb: Notebook) -> None:
    trip = nb.ok("import beside as b, user\nb.rate = 9\nuser.add(1)\nb.new = seen = [2]")
    assert "beside" not in sys.modules
    assert trip.notes == []
    nb.ok("import user, beside\nuser.add(3)\nr = beside.read(), beside.new is seen")
    assert nb.ns["r"] == ((9, [0, 1, 3], {}, "own"), True)
    assert "beside" not in sys.modules
    nb.cell("import user\nimport beside")
    beside = sys.modules["beside"]
    assert (beside.rate, beside.log, beside.new is nb.ns["seen"]) == (9, [0, 1, 3], True)
    assert beside.log is sys.modules["user"].log
    nb.ok("import beside\nbeside.rate += 1")
    assert beside.rate == 10


def test_what_a_deferred_import_finds_and_what_is_defined_there_alone(nb: Notebook) -> None:
    Path("plugin.py").write_text("import beside\nbeside.log.append('plugin')\nstate = None\n")
    Path("helper.py").write_text(
        "def setup():\n    import plugin\n    plugin.state = {'on': [1]}\n    return plugin.state\n"
    )
    nb.ok("import beside")
    nb.ok(
        "import beside, helper\nbeside.add(1)\nmine = helper.setup()\nimport beside as again\nbeside.table = set()\ndel beside.big"
    )
    nb.ok("import plugin\nr = plugin.state, plugin.beside.log")
    assert nb.ns["r"] == ({"on": [1]}, [0, 1, "plugin"])
    assert nb.cell("again.log, again.table, hasattr(again, 'big')") == ([0, 1, "plugin"], set(), False)
    assert sys.modules["plugin"].state is nb.ns["mine"]
    nb.cell("import plugin")
    assert sys.modules["beside"].log == [0, 1, "plugin"]


def test_what_a_cell_deletes_in_a_module_that_only_it_imports_stays_deleted(nb: Notebook) -> None:
    nb.ok("import beside\nbeside.rate, beside.new = 9, 1")
    nb.ok("import beside\ndel beside.rate, beside.model, beside.new")
    nb.ok("import beside\nr = [hasattr(beside, name) for name in ('rate', 'model', 'new')]\nbeside.model = 4")
    assert nb.ns["r"] == [False] * 3
    nb.ok("import beside\nr = [getattr(beside, name, None) for name in ('rate', 'model', 'new')]")
    assert nb.ns["r"] == [None, 4, None]
    nb.cell("import beside")
    beside = sys.modules["beside"]
    assert (hasattr(beside, "rate"), beside.model, hasattr(beside, "new")) == (False, 4, False)


def _is_of_modules(finder: object) -> bool:
    """Tell if a finder watches the notebook's modules, not libraries with settings."""
    return isinstance(finder, ImportWatch) and not finder._at_once


def test_files_of_a_package_are_looked_at_once_and_only_where_something_was_set() -> None:
    looked: list[str] = []
    away = AwayModules(lambda top: looked.append(top) or 1)
    modules = [f"jgr_pack.m{number}" for number in range(20)]
    away.note_modules(modules, {}, [])
    assert looked == []
    away.note_modules(modules, {"jgr_pack.m1:a": 1, "jgr_pack.m2:b": 2}, ["jgr_pack.m3:c"])
    away.note_modules([], {}, ["jgr_pack.m1:a"])
    try:
        assert away.among(["jgr_pack"]) == (modules, {"jgr_pack.m2:b": 2}, ["jgr_pack.m1:a", "jgr_pack.m3:c"])
    finally:
        sys.meta_path[:] = [each for each in sys.meta_path if not _is_of_modules(each)]
    assert looked == ["jgr_pack"] * 2


def test_a_module_that_was_edited_since_is_as_its_file_says(nb: Notebook) -> None:
    nb.ok("import beside\nbeside.rate = 9")
    Path("beside.py").write_text(_SOURCE.replace("= 1, [0]", "= 33, [0]"))
    nb.ok("import beside\nr = beside.rate")
    assert nb.ns["r"] == 33
    nb.cell("import beside")
    assert sys.modules["beside"].rate == 33


def test_what_cannot_come_back_from_a_module_that_only_the_cell_imports_is_said(nb: Notebook) -> None:
    trip = nb.ok("import beside, threading\nbeside.lock = threading.Lock()\nbeside.rate = 2")
    assert trip.notes == ["`beside.lock`: cannot pickle '_thread.lock' object (not returned)"]
    nb.cell("import beside")
    assert (sys.modules["beside"].rate, sys.modules["beside"].lock) == (2, None)
    assert not [each for each in sys.meta_path if _is_of_modules(each)]


def test_what_a_cell_imports_below_a_package_that_has_a_name(nb: Notebook) -> None:
    for name in [name for name in sys.modules if name.startswith(("wsgiref", "xmlrpc"))]:
        del sys.modules[name]
    nb.cell("import wsgiref")
    nb.ok("import wsgiref.headers\nimport xmlrpc.client\nn = len(wsgiref.headers.Headers([]))")
    assert "xmlrpc.client" not in sys.modules
    assert nb.cell("n, wsgiref.headers.__name__, xmlrpc.client.__name__") == (0, "wsgiref.headers", "xmlrpc.client")


def test_what_a_gpu_cell_sets_in_a_module_with_properties_is_said_unless_it_travels(nb: Notebook) -> None:
    nb.cell("import torch, torch.utils.deterministic as det")
    trip = nb.ok("det.fill_uninitialized_memory = False; torch.backends.cudnn.benchmark = True")
    try:
        assert nb.cell("torch.backends.cudnn.benchmark, det.fill_uninitialized_memory") == (True, True)
        assert trip.prepared.notes == [
            "det.fill_uninitialized_memory: set in this cell only, what is set in a library stays in its process"
        ]
    finally:
        nb.cell("torch.backends.cudnn.benchmark = False")


@pytest.mark.parametrize(
    ("setup", "asked", "answer", "end"),
    [
        (
            "import torch.utils.deterministic as d, torch\nd.fill_uninitialized_memory = False; c = torch.backends.cudnn; c.benchmark_limit = 7",
            "d.fill_uninitialized_memory, torch.backends.cudnn.benchmark_limit",
            (False, 7),
            "d.fill_uninitialized_memory = True; c.benchmark_limit = 10",
        ),
        (
            "import logging\nold = logging.lastResort; logging.lastResort = None; logging.raiseExceptions = False",
            "logging.lastResort is None, logging.raiseExceptions",
            (True, False),
            "logging.lastResort = old; logging.raiseExceptions = True",
        ),
        ("import mpmath\nmpmath.mp.dps = 20", "str(mpmath.mp.pi)", "3.1415926535897932385", "mpmath.mp.dps = 15"),
        (
            "import datetime\nplain = datetime.date\nclass Frozen(plain):\n    @classmethod\n    def today(cls): return cls(2020, 1, 2)\ndatetime.date = Frozen; first = Frozen.today()",
            "str(datetime.date.today()), type(datetime.date.today()) is Frozen, first.year, Frozen.__mro__[1] is plain",
            ("2020-01-02", True, 2020, True),
            "datetime.date = plain",
        ),
        (
            "import requests\nPlain = requests.Session\nclass Loud(Plain):\n    def get(self, *a): return 'got'\nrequests.sessions.Session = requests.Session = Loud",
            "requests.Session().get(), type(Plain()).__name__, Loud.__mro__[1] is Plain, issubclass(type(requests.session()), Plain)",
            ("got", "Session", True, True),
            "requests.sessions.Session = requests.Session = Plain",
        ),
    ],
    ids=[
        *("a module with properties", "behind another statement", "an object of a module"),
        *("a class of Python's", "a class of a library"),
    ],
)
def test_what_the_notebook_set_in_a_library_is_so_in_the_cell(
    nb: Notebook, setup: str, asked: str, answer: object, end: str
) -> None:
    nb.cell(setup)
    try:
        nb.ok(f"r = {asked}")
        assert nb.ns["r"] == answer
    finally:
        nb.cell(end)
