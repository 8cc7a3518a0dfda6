# ruff: noqa: E501 - a cell is one string
"""Whoever else in the notebook holds what a GPU cell changed in place sees the change."""

from __future__ import annotations

import gc
import sys
import types
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
from optional_libraries import torch
from round_trip import Notebook
from soak import thorough

from jupyter_gpu_release.errors import CannotSendError
from jupyter_gpu_release.kernel.namespace import stale_parts, stale_references
from tests.cells.table import Cell

LISTS = (
    "import functools, collections\nlst = [0]\n"
    "P = collections.namedtuple('P', 'a b')\n"
    "tup = (lst,)\nnested = {'k': [(1, (lst, 'x'))]}\npair = P(lst, 2)\n"
    "def use(x, acc=lst, *, kw=lst): return acc, kw\n"
    "clo = (lambda z: lambda: z)(lst)\npa = functools.partial(use, lst, more=lst)\n"
    "deq = collections.deque([lst])\nod = collections.OrderedDict(a=lst)\nadd = lst.append\n"
    "class S:\n    __slots__ = ('v', 'w')\n    kept = lst\n    def me(self): return self.v\n"
    "s = S()\ns.v = lst\nsm = s.me\nown = (s, [s])\n"
)


def test_tuples_closures_defaults_and_partials(nb: Notebook) -> None:
    nb.cell(LISTS)
    nb.ok("lst.append(1)")
    ns = nb.ns
    lst = ns["lst"]
    assert lst == [0, 1]
    held = [
        ns["tup"][0],
        ns["nested"]["k"][0][1][0],
        ns["pair"].a,
        *ns["use"](0),
        ns["clo"](),
        ns["pa"].args[0],
        ns["pa"].keywords["more"],
        ns["deq"][0],
        ns["od"]["a"],
        ns["s"].v,
        ns["S"].kept,
        ns["sm"](),
        ns["own"][0].v,
    ]
    assert [thing is lst for thing in held] == [True] * len(held)
    ns["add"](5)
    assert lst == [0, 1, 5]
    assert ns["own"][0] is ns["s"] is ns["own"][1][0]


def test_objects_models_and_tensors_in_tuples(nb: Notebook) -> None:
    nb.cell(
        "import torch\nfrom torch import nn\nclass O: pass\nob = O()\nob.v = 1\nobt = (ob,)\nobs = {ob}\nm = ob.__class__.__repr__\n"
        "net = nn.Linear(2, 2)\npair = (net, 'name')\nptup = tuple(net.parameters())\nten = torch.zeros(3)\ntent = (ten,)\nrow = ten[1:]\n"
        "fwd = net.forward\nbyp = {p: 1 for p in ptup}"
    )
    nb.ok("ob.v = 2\nwith torch.no_grad():\n    net.weight.fill_(3)\nten += 1")
    ns = nb.ns
    assert ns["obt"][0] is ns["ob"]
    assert ns["obs"] == {ns["ob"]}
    assert ns["pair"][0] is ns["net"]
    assert ns["fwd"].__self__ is ns["net"]
    assert all(a is b for a, b in zip(ns["ptup"], ns["net"].parameters(), strict=True))
    assert all(a is b for a, b in zip(ns["byp"], ns["net"].parameters(), strict=True))
    assert ns["tent"][0] is ns["ten"]
    ns["ten"][2] = 9
    assert ns["row"].tolist() == [1, 9]


def test_closures_share_a_variable_with_those_that_stayed(nb: Notebook) -> None:
    nb.cell(
        "def mk():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1\n        return n\n"
        "    def get(): return n\n    return inc, get\ninc, get = mk()\nbefore = inc\n"
        "def twice(f):\n    def inner(): return f(), f()\n    return inner\ninc2, get2 = mk()\ninc2 = twice(inc2)"
    )
    nb.ok("inc()\ninc()\ninc2()\nnew = {'f': [inc]}")
    ns = nb.ns
    assert (ns["get"](), ns["inc"](), ns["get"]()) == (2, 3, 3)
    assert ns["inc"] is ns["before"] is ns["new"]["f"][0]
    assert (ns["inc2"](), ns["get2"]()) == ((3, 4), 4)


def test_arrays_see_what_a_cell_did_to_another_view(nb: Notebook) -> None:
    nb.cell(
        "import numpy as np, torch\nE = np.zeros((1000, 1000))\nparts = (E[:2], [E[4:6]])\nF = np.zeros((1000, 1000))\nsmall = F[:3]\n"
        "T = torch.zeros(1000, 1000)\nbatch = T[:3]\nH = np.zeros((10, 10))\nrows = H[2:]"
    )
    nb.ok("E += 1\nsmall += 1\nbatch += 1\nrows += 1\nholder = [small]")
    ns = nb.ns
    assert (ns["parts"][0][0, 0], ns["parts"][1][0][1, 1]) == (1, 1)
    assert np.shares_memory(ns["parts"][0], ns["E"])
    assert (ns["F"][2, 0], ns["F"][3, 0], float(ns["T"][2, 0]), float(ns["T"][3, 0])) == (1, 0, 1, 0)
    assert ns["holder"][0] is ns["small"]
    assert np.shares_memory(ns["small"], ns["F"])
    assert (ns["H"][1, 0], ns["H"][2, 0]) == (0, 1)
    assert np.shares_memory(ns["H"], ns["rows"])
    assert torch.equal(ns["T"][:3], ns["batch"])


def test_what_takes_no_weak_reference_is_the_same_too(nb: Notebook) -> None:
    nb.cell(
        "from dataclasses import dataclass\nfrom collections import defaultdict\nfrom types import SimpleNamespace\n"
        "@dataclass(slots=True)\nclass Node:\n    x: int\n    next: object = None\n"
        "lst = [Node(5, Node(6))]\nn5, n6 = lst[0], lst[0].next\n"
        "box = {'d': defaultdict(int), 'ar': bytearray(b'abc'), 'ns': SimpleNamespace(v=1), 'rows': [[n5], {3}]}\n"
        "d, ar, ns, rows, some = box['d'], box['ar'], box['ns'], box['rows'], box['rows'][1]"
    )
    nb.ok(
        "lst[0].x = 7\nlst[0].next.x = 8\nbox['d']['k'] += 1\nbox['ar'] += b'z'\nbox['ns'].v = 2\nbox['rows'][1].add(4)"
    )
    ns = nb.ns
    assert (ns["n5"].x, ns["n6"].x) == (7, 8)
    assert ns["rows"][0][0] is ns["n5"] is ns["lst"][0]
    assert ns["n6"] is ns["n5"].next
    assert (ns["d"], ns["ar"], ns["ns"].v, ns["some"]) == ({"k": 1}, b"abcz", 2, {3, 4})
    assert ns["d"] is ns["box"]["d"]


def test_plain_parts_that_hold_tensors_are_the_same_too(nb: Notebook) -> None:
    nb.cell(
        "import torch, numpy as np\nfrom dataclasses import dataclass\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.Adam(model.parameters())\n"
        "model(torch.ones(1, 2)).sum().backward(); optimizer.step()\ncheckpoint = {'optimizer': optimizer.state_dict()}\ngroups = optimizer.param_groups\n"
        "@dataclass(slots=True)\nclass Pair:\n    x: object\nnest = {'rows': [np.zeros(2)], 'pair': Pair(torch.zeros(1))}\nrows, pair = nest['rows'], nest['pair']\n"
        "class Bank:\n    def __init__(self): self.accounts = [self.__class__.__new__(Bank)]\nbank = Bank(); accounts = bank.accounts"
    )
    nb.ok(
        "optimizer.param_groups[0]['lr'] = 7\noptimizer.step()\nnest['rows'].append(1)\nnest['pair'].x = 2\nbank.accounts.append(1)"
    )
    ns = nb.ns
    assert len(ns["accounts"]) == 2
    state = ns["optimizer"].state[ns["model"].weight]
    assert state is ns["checkpoint"]["optimizer"]["state"][0]
    assert (int(state["step"]), ns["groups"][0]["lr"], len(ns["rows"]), ns["pair"].x) == (2, 7, 2, 2)
    assert ns["groups"][0]["params"][0] is ns["model"].weight
    assert ns["optimizer"].param_groups is ns["groups"]
    nb.ok(
        "optimizer.state = {p: dict(s) for p, s in optimizer.state.items()}\noptimizer.state[model.weight]['step'] += 1"
    )
    assert int(ns["checkpoint"]["optimizer"]["state"][0]["step"]) == 3, "the tensor is still the same"
    assert ns["optimizer"].state[ns["model"].weight] is not ns["checkpoint"]["optimizer"]["state"][0]


def test_objects_written_in_c_have_their_new_state_and_stay_themselves(nb: Notebook) -> None:
    nb.cell(
        "import array, random\nclass Dice(random.Random):\n    def roll(self): return self.randint(1, 6)\n"
        "numbers = array.array('d', [1, 2]); chance = random.Random(5); dice = Dice(1); held = [numbers, chance, dice]\n"
        "expected = random.Random(5); expected = [expected.random() for _ in '12345']; rolls = Dice(1); rolls = [rolls.roll() for _ in '123']"
    )
    nb.ok("numbers.append(3); got = [chance.random() for _ in '12']; seen = [dice.roll()]")
    ns = nb.ns
    assert all(thing is ns[name] for thing, name in zip(ns["held"], ("numbers", "chance", "dice"), strict=True))
    assert ns["held"][0].tolist() == [1, 2, 3]
    nb.cell("got.append(chance.random()); seen.append(dice.roll())")
    nb.ok("got += [chance.random() for _ in '12']; seen.append(dice.roll())")
    assert (ns["got"], ns["seen"]) == (ns["expected"], ns["rolls"])


def test_objects_of_odd_classes_are_as_the_cell_left_them(nb: Notebook) -> None:
    nb.cell(
        "import numpy as np, pandas as pd, collections\n"
        "class Twice(dict):\n    def __setitem__(self, key, value): super().__setitem__(key, 2 * value)\n"
        "class Ordered(collections.OrderedDict):\n    def __setitem__(self, key, value): super().__setitem__(key, 2 * value)\n"
        "class Up(list):\n    __slots__ = ('last',)\n    def extend(self, more): raise TypeError\n    def append(self, x): self.last = x; super().append(x + 1)\n"
        "class Word(str): pass\nclass Number(int): pass\n"
        "class Lazy:\n    def __init__(self): self.n, self.cache = 1, [0]\n    def __getstate__(self): return {'n': self.n}\n"
        "twice, ordered, up, word, number, lazy = Twice(), Ordered(), Up(), Word('a'), Number(5), Lazy()\n"
        "twice['a'] = ordered['a'] = 1; up.append(1); word.seen, number.unit = [1], 'm'; cache = lazy.cache; frozen = np.arange(3)\n"
        "df = pd.DataFrame({'k': [1, 1], 'v': [2, 3]}); groups = df.groupby('k')\n"
    )
    nb.ok(
        "twice['b'] = ordered['b'] = 2; up.append(2); word.seen.append(2); number.unit = 'km'; lazy.n = 2; frozen.sort(); frozen[0] = 7\n"
        "frozen.flags.writeable = False; total = groups.sum().v.tolist()"
    )
    ns = nb.ns
    assert [dict(ns["twice"]), dict(ns["ordered"])] == [{"a": 2, "b": 4}] * 2
    assert (list(ns["up"]), ns["up"].last, ns["word"].seen, ns["number"].unit) == ([2, 3], 2, [1, 2], "km")
    assert (ns["lazy"].n, ns["lazy"].cache is ns["cache"]) == (2, True)
    assert (ns["frozen"].tolist(), ns["frozen"].flags.writeable) == ([7, 1, 2], False)
    assert ns["groups"].obj is ns["df"]


def test_a_memoryview_that_a_cell_makes_looks_at_the_notebooks_memory(nb: Notebook) -> None:
    nb.cell("import numpy as np\nx = np.zeros(4); raw = bytearray(b'abcdef')")
    nb.ok(
        "view, part, grid = memoryview(x), memoryview(raw)[2:4], memoryview(x).cast('B').cast('d', (2, 2)); own = memoryview(b'xy')"
    )
    nb.cell("x[1] = 5; raw[2] = 90; view[2] = 6")
    ns = nb.ns
    assert (ns["view"].tolist(), bytes(ns["part"]), ns["grid"].tolist()) == ([0, 5, 6, 0], b"Zd", [[0, 5], [6, 0]])
    assert (ns["x"][2], ns["own"].readonly, bytes(ns["own"])) == (6, True, b"xy")
    nb.ok("x += 1; raw[3] = 91; seen = view.tolist(), bytes(part)")
    assert (ns["seen"], ns["view"][1], bytes(ns["part"])) == (([1, 6, 7, 1], b"Z["), 6, b"Z[")
    assert nb.ok("gaps = view[::2]").notes == ["`gaps` came back as bytes, without what it looked at"]


def test_objects_in_a_column_that_are_too_many_to_stay_themselves_are_said(nb: Notebook) -> None:
    nb.cell("import pandas as pd\nfew, many = (pd.DataFrame({'a': [[i] for i in range(n)]}) for n in (9_000, 12_000))")
    trip = nb.ok("few['n'] = 1; many['n'] = 1")
    assert trip.notes == ["parts of `many` that something else holds, too, are still the old ones there"]


@pytest.mark.parametrize("count", [20_000, *thorough(60_000)])
def test_parts_of_large_inputs_that_stay_the_old_ones_are_said(nb: Notebook, count: int) -> None:
    nb.cell(
        f"class Account:\n    def __init__(self, n): self.n = n\nbank = {{'all': [Account(n) for n in range({count})], 'few': [Account(0)], 'plain': [1]}}\n"
        "quiet = {'all': [Account(n) for n in range(6000)]}\nfew = bank['few']"
    )
    trip = nb.ok("bank['few'].append(1)\nquiet['all'].append(1)")
    said = "parts of `bank` that something else holds, too, are still the old ones there"
    assert (len(nb.ns["few"]), [note for note in trip.notes if "old ones" in note]) == (1, [said])
    nb.cell("few = None")
    assert not any("old ones" in note for note in nb.ok("bank['few'].append(1)").notes)


def test_an_attribute_that_its_class_does_not_let_travel_is_as_before_and_is_said(nb: Notebook) -> None:
    nb.cell(
        "class Lazy:\n    def __init__(self): self.n, self.cache = 1, [0]\n    def __getstate__(self): return {'n': self.n}\n"
        "    def __setstate__(self, state): self.n = state['n']\n"
        "class Packed:\n    def __init__(self): self.n = 1\n    def __getstate__(self): return {'packed': self.n}\n"
        "    def __setstate__(self, state): self.n = state['packed']\n"
        "lazy, packed = Lazy(), Packed(); packed.extra = 5"
    )
    notes = nb.ok("lazy.n, lazy.cache = 2, None; packed.n = 2").notes
    assert (nb.ns["lazy"].n, nb.ns["lazy"].cache, vars(nb.ns["packed"])) == (2, [0], {"n": 2, "extra": 5})
    said = "does not travel: it is what it was before the cell"
    assert notes == [f"`Lazy.cache` {said}", f"`Packed.extra` {said}"]


def test_of_a_librarys_subclass_what_cannot_travel_is_said_and_what_its_methods_set_is_refused(nb: Notebook) -> None:
    nb.cell(
        "import datetime, threading\nclass Day(datetime.date):\n    lock = None\n    def guard(self): self.guarded = threading.Lock()\n"
        "day, guarded = Day(2024, 1, 1), Day(2024, 1, 1); day.lock = threading.Lock(); lock = day.lock; day.label = 'a'; guarded.guard()"
    )
    sent = nb.ok("day.label = 'b'; is_without = day.lock is None")
    assert (nb.ns["day"].label, nb.ns["day"].lock is nb.ns["lock"], nb.ns["is_without"]) == ("b", True, True)
    assert sent.prepared.notes == ["`day` was sent without its `lock`"]
    with pytest.raises(CannotSendError, match="guarded"):
        nb.gpu("guarded.label = 'b'")


def test_an_attribute_that_cannot_travel_beside_reduce_is_as_before_and_is_said(nb: Notebook) -> None:
    nb.cell(
        "import os, threading\n"
        "class Vec:\n    def __init__(self, x): self.x = x\n    def __reduce__(self): return Vec, (self.x,)\n"
        "class Whole:\n    def __init__(self, given): self.__dict__ = given\n    def __reduce__(self): return Whole, (self.__dict__,)\n"
        "class Slot:\n    __slots__ = ('n', 'tag', 'lock')\n    def __init__(self, n): self.n, self.lock = n, threading.Lock()\n    def __reduce__(self): return Slot, (self.n,)\n"
        "class Log:\n    def __init__(self, path): self.path, self.lines = path, 0; self.number = os.open(path, os.O_RDONLY)\n"
        "    def close(self): os.close(self.number)\n    def __reduce__(self): return Log, (self.path,)\n"
        "class Packed:\n    def __init__(self, n): self.n = n\n    def __getstate__(self): return (self.n,)\n"
        "    def __setstate__(self, state): self.n, = state\n"
        "v, whole, slot, packed = Vec(2), Whole({'a': 1, 'b': 2}), Slot(1), Packed(1); v.label = slot.tag = packed.tag = 'mine'\n"
        "log = Log(os.devnull); was = log.number, slot.lock"
    )
    notes = nb.ok("v.x = slot.n = packed.n = 3; del whole.b; v.label += 'd'; slot.tag = v.label; log.lines += 1").notes
    ns = nb.ns
    assert (vars(ns["v"]), vars(ns["whole"])) == ({"x": 3, "label": "mined"}, {"a": 1})
    assert (ns["slot"].n, ns["slot"].tag, vars(ns["packed"])) == (3, "mined", {"n": 3, "tag": "mine"})
    assert (ns["log"].number, ns["slot"].lock, ns["log"].lines) == (*ns["was"], 1)
    nb.cell("log.close()")
    said = "does not travel: it is what it was before the cell"
    assert notes == [f"`{name}` {said}" for name in ("Log.number", "Packed.tag", "Slot.lock")]


def test_of_what_is_too_large_to_be_walked_nothing_is_said(nb: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part is the same object as before; that it was not found in so many steps says nothing."""
    monkeypatch.setattr(stale_parts, "_MOST_AFTERWARDS", 100)
    nb.cell("class Account: pass\nbank = [[Account() for _ in range(6000)] for _ in range(3)]; few = bank[2]")
    assert not any("old ones" in note for note in nb.ok("bank.append(1)").notes)


def test_sentinels_are_themselves_in_inputs_and_results(nb: Notebook) -> None:
    holder = types.SimpleNamespace(MISSING=object())  # as a module that the notebook does not send
    nb.ns["MISSING"] = holder.MISSING
    nb.cell(
        "slots = [MISSING] * 3\ndef filled(items, but=MISSING): return [x for x in items if x is not MISSING and x is not but]"
    )
    nb.ok("slots[0] = 1")
    assert nb.cell("filled(slots)") == [1]
    nb.ok("found = {'all': (MISSING, 2, slots[1])}\nown = object()\nalias = MISSING")
    assert nb.cell("filled(found['all'])") == [2]
    assert nb.ns["MISSING"] is nb.ns["alias"] is nb.ns["slots"][1] is holder.MISSING is not nb.ns["own"]


EVERYWHERE = """
import sys, types, threading, queue, numpy as np, pandas as pd, torch, weakref
mymod = types.ModuleType("a5_mymod"); sys.modules["a5_mymod"] = mymod
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.lin = torch.nn.Linear(3, 2); self.seen = []
    def forward(self, x): return self.lin(x)
class Box:
    __slots__ = ("v", "__weakref__")
model = Net(); x = np.zeros(4); raw = bytearray(b"abcd"); cfg = {"lr": 1}; t = torch.zeros(4); box = Box(); box.v = 1
df = pd.DataFrame({"a": [1.0, 2.0]})
mymod.MODEL, mymod.X, mymod.T, mymod.DF, mymod.CFG = model, x, t, df, cfg
objects = np.array([model, box, None], dtype=object)
view, rview, tview, values = memoryview(x), memoryview(raw), t.numpy(), df.to_numpy()
line = queue.SimpleQueue(); line.put(model); line.put(cfg)
def gen(held):
    while True: yield held
g = gen(model); next(g); it = iter([box, cfg])
opt = torch.optim.Adam(model.parameters()); sched = torch.optim.lr_scheduler.StepLR(opt, 1)
"""


def test_whoever_holds_an_object_sees_what_a_cell_did_to_it(nb: Notebook) -> None:
    nb.cell(EVERYWHERE)
    nb.cell("[model, x]")
    ns = nb.ns
    held = {name: ns[name] for name in ("model", "x", "raw", "cfg", "t", "box", "df", "opt", "sched")}
    weight = ns["model"].lin.weight
    for _ in range(2):
        nb.ok(
            "x += 1; raw[0] = 122; cfg['lr'] += 1; t += 1; box.v += 1; df.iloc[0, 0] = 9\n"
            "model(torch.ones(2, 3)).sum().backward(); opt.step(); sched.step(); opt.zero_grad()\nmodel.seen.append(model.lin.weight)"
        )
    assert [ns[name] is thing for name, thing in held.items()] == [True] * len(held)
    assert ns["model"].lin.weight is weight is ns["model"].seen[1] is ns["opt"].param_groups[0]["params"][0]
    mymod = ns["mymod"]
    assert mymod.MODEL is ns["objects"][0] is ns["line"].get() is next(ns["g"]) is ns["model"]
    assert len(mymod.MODEL.seen) == 2
    assert (mymod.X.tolist(), mymod.T.tolist(), mymod.DF.iloc[0, 0], mymod.CFG["lr"]) == ([2] * 4, [2] * 4, 9, 3)
    assert (ns["view"][1], bytes(ns["rview"]), ns["tview"].tolist(), ns["values"][0, 0]) == (2, b"zbcd", [2] * 4, 9)
    assert ns["objects"][1].v == next(ns["it"]).v == 3
    assert ns["df"].flags.allows_duplicate_labels
    nb.cell("model(torch.ones(2, 3)).sum().backward(); opt.step(); sched.step()")
    assert ns["opt"].state[weight]["step"] == 3


def test_frames_that_share_memory_in_the_notebook_are_not_written_through(nb: Notebook) -> None:
    nb.cell(
        "import pandas as pd\ndf = pd.DataFrame({'a': [1.0, 2.0], 'b': [3.0, 4.0]})\nother, col = df.rename(columns={'a': 'z'}), df['a']"
    )
    nb.ok("df.iloc[0, 0] = 9\ndf['c'] = 1")
    ns = nb.ns
    assert ns["df"].to_numpy().tolist() == [[9, 3, 1], [2, 4, 1]]
    assert (ns["other"].iloc[0, 0], ns["col"].iloc[0]) == (1, 1)


def test_a_changed_input_is_one_object_with_what_is_made_of_it(nb: Notebook) -> None:
    nb.cell(
        "import numpy as np, torch\nx = np.arange(12.0); old = x[2:5]; net = torch.nn.Linear(2, 1); w = net.weight.data; big = np.zeros(300_000); part = big[5:7]"
    )
    nb.ok(
        "x[3] = 50\nX = x.reshape(3, 4)\nopt = torch.optim.SGD(net.parameters(), 0.1)\nwith torch.no_grad():\n    net.weight.fill_(7)\nbig += 1\nhalf = big[::2]"
    )
    ns = nb.ns
    assert ns["old"].tolist() == [2, 50, 4]
    ns["X"][0, 2] = -1
    assert (ns["x"][2], ns["old"][0]) == (-1, -1)
    assert ns["opt"].param_groups[0]["params"][0] is ns["net"].weight
    assert ns["w"].tolist() == [[7, 7]]
    ns["half"][3] = 4
    assert (ns["part"].tolist(), ns["big"][6]) == ([1, 4], 4)


def test_arrays_of_subplots_hold_the_parts_of_a_figure_that_a_cell_changed(nb: Notebook) -> None:
    nb.gpu("import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\nfig, axes = plt.subplots(1, 2)")
    nb.gpu("fig.savefig('two.png')")
    assert [*nb.ns["axes"]] == nb.ns["fig"].axes
    nb.cell("axes[0].set_title('here')\nassert fig.axes[0].get_title() == 'here'")


def test_hooks_of_several_cells_do_not_replace_one_another(nb: Notebook) -> None:
    nb.cell("import torch\nmodel, heard = torch.nn.Linear(2, 2), []")
    for name in "ab":
        nb.gpu(f"handle = model.register_forward_hook(lambda *_: heard.append('{name}'))")
        nb.ns["handle_" + name] = nb.ns["handle"]
    nb.cell("model.register_forward_hook(lambda *_: heard.append('c'))\nmodel(torch.ones(2))")
    assert nb.ns["heard"] == ["a", "b", "c"]
    nb.gpu("handle_a.remove()\nmodel(torch.ones(2))")
    assert nb.ns["heard"] == ["a", "b", "c", "b", "c"]
    nb.cell("handle_b.remove()\nassert len(model._forward_hooks) == 1")


REPLACED = """
import numpy as np, threading, queue
x, y, z = np.zeros(4), np.zeros(4), np.zeros(4)
held, started, go, seen = [x, (y, {"y": y})], threading.Event(), threading.Event(), []
def work(mine):
    started.set()
    go.wait(60)
    seen.append(mine.shape)
def gen(mine):
    while True: yield mine.shape
"""


def test_what_only_a_thread_or_a_generator_holds_of_a_replaced_object_is_said(nb: Notebook) -> None:
    nb.cell(REPLACED)
    trip = nb.ok("x.dtype = y.dtype = 'i4'")
    assert trip.notes == []
    assert nb.cell("held[0] is x, held[1][0] is y, held[1][1]['y'] is y, x.shape") == (True, True, True, (8,))
    nb.cell("g = gen(x); next(g)\nthread = threading.Thread(target=work, args=(y,)); thread.start(); started.wait(60)")
    try:
        trip = nb.ok("for each in (x, y, z): each.dtype = 'i2'")
    finally:
        nb.cell("go.set(); thread.join()")
    assert [note.partition(" is another object now")[0] for note in trip.notes] == ["`x`", "`y`"]
    assert all(note.endswith("still holds the old one") for note in trip.notes)
    assert nb.cell("next(g), seen[0], z.shape") == ((8,), (8,), (16,))


def test_one_look_finds_what_holds_many_old_objects_whatever_else_there_is() -> None:
    class Lost:
        pass

    def left() -> list[str]:
        sys.setprofile(lambda _frame, _event, called: looks.append(called) if called is gc.get_referrers else None)
        try:
            return stale_references.left_behind(olds, lambda _old: ours)
        finally:
            sys.setprofile(None)

    looks: list[object] = []
    ours: list[int] = []
    olds: dict[str, list[object]] = {f"old{number}": [weakref.proxy(Lost())] for number in range(50)}
    assert left() == []
    held = weakref.proxy(Lost()), olds["old7"], {"in": olds["old9"]}
    assert left() == ["old7", "old9"]
    ours.append(id(held))
    assert left() == ["old9"]
    assert looks == [gc.get_referrers] * 6  # its call and its return, for each


def test_names_are_bound_although_it_cannot_be_told_who_holds_old_objects(
    nb: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise ReferenceError("gone")

    nb.cell("import numpy as np\nx = np.zeros(4)")
    monkeypatch.setattr(stale_references, "_locals_of_other_threads", refuse)
    assert nb.ok("x.shape = 2, 2").notes == []
    assert nb.ns["x"].shape == (2, 2)


def test_weak_proxies_stand_for_the_notebooks_object(nb: Notebook) -> None:
    """As a trainer's profiler has one of the model (PyTorch Lightning)."""
    nb.cell("""import weakref
class Model: pass
class Trainer: pass
model, trainer = Model(), Trainer()
trainer.model, trainer.parts = weakref.proxy(model), [weakref.ref(model), weakref.proxy(gone := Model())]
del gone""")
    nb.ok("model.weight = 1\ntrainer.epoch = 1\nseen = trainer.model.weight\nother = weakref.proxy(model)")
    assert nb.cell("seen, trainer.epoch, trainer.model.weight, other.weight, trainer.parts[0]() is model") == (
        1,
        1,
        1,
        1,
        True,
    )
    nb.cell("model.weight = 2")
    nb.ok("trainer.model.bias, trainer.epoch = 3, other.weight + 10 * trainer.parts[0]().weight")
    assert nb.cell("model.bias, trainer.epoch, type(trainer.model) is weakref.ProxyType") == (3, 22, True)
    with pytest.raises(ReferenceError):
        nb.cell("trainer.parts[1].weight")


_EQUAL = {
    "a dict": ("c = {'k': 1}; a = [c]", "f = {'k': 1}; a[0] = f", "f['k'] = 2", "a, c, f, a[0] is f"),
    "a list of an object": ("o = types.SimpleNamespace(log=[])", "o.log = log = []", "log.append(1)", "o.log, log"),
    "an array": ("o = types.SimpleNamespace(w=np.zeros(2))", "o.w = w = np.zeros(2)", "w += 1", "o.w, w"),
    "exchanged": ("p, q = [], []; a = [p, q]", "a.reverse()", "p.append(1)", "a, p, q"),
    "deeper": ("d = {'x': {'y': []}}", "d['x'] = {'y': []}; y = d['x']['y']", "y.append(1)", "d, y"),
}


@pytest.mark.parametrize("case", _EQUAL)
def test_an_equal_part_in_the_place_of_another_is_the_new_one(nb: Notebook, case: str) -> None:
    setup, body, later, asked = _EQUAL[case]
    imports = "import types\nimport numpy as np\n"
    plain: dict[str, Any] = {"__name__": "__main__"}
    exec(f"{imports}{setup}\n{body}\n{later}", plain)
    nb.cell(imports + setup)
    nb.ok(body)
    nb.cell(later)
    assert repr(nb.cell(asked)) == repr(eval(asked, plain))


def test_errors_that_are_kept_keep_where_they_were_raised(nb: Notebook) -> None:
    nb.cell("errors = []\ntry:\n    1 / 0\nexcept Exception as error:\n    errors.append(error)\nfirst = errors[0]")
    place = nb.ns["first"].__traceback__
    assert place is not None
    nb.ok("errors[0].add_note('seen'); errors.append(2)")
    assert nb.ns["errors"][0] is nb.ns["first"]
    assert nb.ns["first"].__notes__ == ["seen"]
    assert nb.ns["first"].__traceback__ is place


def test_iterators_that_tell_nothing_of_themselves_are_long_or_warn_who_asks_them(nb: Notebook) -> None:
    nb.cell(
        "import itertools, warnings\npair = itertools.pairwise([1, 2, 3]); long = iter(range(10**30)); next(long)\n"
        "chained = itertools.chain([1], [2]); e = enumerate('ab'); box = [e, long]"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # itertools has some for who asks
        nb.ok("next(e); next(long)")
    assert nb.cell("next(pair), next(box[0]), box[0] is e, next(box[1]), next(chained)") == (
        (1, 2),
        (1, "b"),
        True,
        2,
        1,
    )


def test_where_there_is_too_much_to_look_through_the_receipt_says_that_something_holds_the_old_one(
    nb: Notebook,
) -> None:
    nb.cell(
        "import numpy as np, types\nm = np.arange(4); many = [[[j] for j in range(100)] for i in range(400)]\n"
        "a = types.SimpleNamespace(b=types.SimpleNamespace(c={'d': [m]})); part = {'m': m}; del m"
    )
    note = "an object of `ndarray` is another one now; something still holds the old one"
    assert nb.ok("part['m'].dtype = 'u8'").notes == [note]
    nb.cell("many.clear(); a.b.c['d'][0] = part['m']")
    assert nb.ok("part['m'].dtype = 'i8'").notes == []
    assert nb.cell("a.b.c['d'][0] is part['m']")


def test_an_image_has_the_pixels_into_which_others_draw(nb: Notebook) -> None:
    nb.expect_as_plain(
        Cell(
            "from PIL import Image, ImageDraw\nim = Image.new('RGB', (3, 1)); dr = ImageDraw.Draw(im); px = im.load()\n"
            "few = Image.new('P', (2, 1)); few.putpalette([1, 2, 3] * 2); at = few.load()",
            "im.putpixel((0, 0), (255, 0, 0)); im.info['k'] = 1; few.putpixel((1, 0), 1); few.putpalette([4, 5, 6] * 2)",
            "dr.point([(1, 0)], fill=(0, 255, 0)), px[0, 0], im.getpixel((1, 0)), im.info, at[1, 0], few.getpixel((1, 0)),"
            "few.convert('RGB').getpixel((1, 0))",
        )
    )


def test_functions_in_a_query_of_polars_are_copies_and_it_is_said(nb: Notebook) -> None:
    pytest.importorskip("polars")
    nb.cell(
        "import polars as pl\nk = 1\nplain = pl.LazyFrame({'a': [1]}).select(pl.col('a') + 1)\n"
        "lf = pl.LazyFrame({'a': [1]}).select(pl.col('a').map_elements(lambda x: max(x, k), return_dtype=pl.Int64))"
    )
    trip = nb.ok("r = lf.collect()['a'].to_list(), plain.collect()['a'].to_list()")
    assert nb.ns["r"] == ([1], [2])
    notes = [each for each in (*trip.prepared.notes, *trip.notes) if "copies" in each]
    assert notes == ["`lf` was sent with copies of its functions and of the names that they use"]
