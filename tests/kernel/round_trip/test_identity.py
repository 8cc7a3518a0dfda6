# ruff: noqa: E501 - a cell is one string
"""What a GPU cell makes from inputs that it does not change refers to the notebook's own objects and their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optional_libraries import torch
from round_trip import Notebook

from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust


@pytest.mark.parametrize("through_files", [False, True])
def test_an_optimiser_made_in_a_cell_of_its_own_trains_the_notebooks_model(nb: Notebook, through_files: bool) -> None:
    nb.cell("import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(400, 400), torch.nn.Linear(400, 1))")
    model = nb.ns["model"]
    nb.ok("optimizer = torch.optim.SGD(model.parameters(), lr=0.5)", through_files=through_files)
    assert nb.ns["model"] is model
    params = nb.ns["optimizer"].param_groups[0]["params"]
    assert [a is b for a, b in zip(params, model.parameters(), strict=True)] == [True] * 4
    nb.cell("before = model[1].bias.item()\nmodel(torch.ones(1, 400)).sum().backward()\noptimizer.step()")
    assert model[1].bias.item() == pytest.approx(nb.ns["before"] - 0.5)
    nb.ok("loss = model(torch.ones(1, 400)).sum()\nloss.backward()\noptimizer.step()", through_files=through_files)
    assert nb.ns["optimizer"].param_groups[0]["params"][3] is nb.ns["model"][1].bias


HELD = """
import numpy as np, pandas as pd, torch, collections
class Net:
    def __init__(self, n): self.n = n; self.parts = [n]
class Trainer:
    def __init__(self, model): self.model = model; self.log = {}
class Slotted:
    __slots__ = ("net",)
df = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
nets = [Net(i) for i in range(5)]
a = Net(9)
model = torch.nn.Linear(2, 2)
cfg = {"model": model, "layers": [[1, 2], {"k": (a, [3])}], "seen": {a}}
ds = torch.utils.data.TensorDataset(torch.zeros(4, 2), torch.zeros(4))
slotted = Slotted(); slotted.net = a
names = bytearray(b"abc"); queue = collections.deque([a])
"""


def test_results_hold_the_notebooks_own_objects(nb: Notebook) -> None:
    nb.cell(HELD)
    nb.ok(
        "sub = df\nbest = max(nets, key=lambda n: n.n)\npipe = [('a', a), ('m', model)]\nloader = torch.utils.data.DataLoader(ds)\n"
        "trainer = Trainer(model)\ncfg2 = cfg\nlayer = cfg['layers'][1]['k'][1]\nsome = nets[1:3]\nw = model.weight\nfirst = nets[0].parts\n"
        "held = {'names': names, 'q': queue, 's': slotted, 'set': cfg['seen'], 'add': nets[0].parts.append}"
    )
    ns = nb.ns
    assert ns["sub"] is ns["df"]
    assert ns["best"] is ns["nets"][4]
    assert ns["pipe"][0][1] is ns["a"]
    assert ns["pipe"][1][1] is ns["trainer"].model is ns["model"]
    assert ns["loader"].dataset is ns["ds"]
    assert ns["cfg2"] is ns["cfg"]
    assert ns["layer"] is ns["cfg"]["layers"][1]["k"][1]
    assert ns["some"] == ns["nets"][1:3]
    assert ns["w"] is ns["model"].weight
    assert ns["first"] is ns["nets"][0].parts
    held = ns["held"]
    assert [held["names"] is ns["names"], held["q"] is ns["queue"], held["s"] is ns["slotted"]] == [True] * 3
    assert held["set"] is ns["cfg"]["seen"]
    held["add"](7)
    assert ns["nets"][0].parts == [0, 7]


def test_objects_that_move_to_another_place_are_not_taken_for_what_was_at_their_address(nb: Notebook) -> None:
    nb.cell("rows = [{'n': i, 'of': [i]} for i in range(50)]\ncfg = {'rows': rows}\ndel rows")
    nb.ok(
        "for _ in range(4):\n    cfg['rows'] = [dict(row) for row in cfg['rows']]\nbest, last = cfg['rows'][7], cfg['rows'][-1]"
    )
    ns = nb.ns
    assert (ns["best"]["n"], ns["last"]["n"]) == (7, 49)
    assert ns["best"]["of"] is ns["cfg"]["rows"][7]["of"]


def test_what_is_renamed_or_wrapped_is_still_the_notebooks(nb: Notebook) -> None:
    nb.cell(HELD + "net = model; keep = a; all_nets = list(nets)")
    nb.ok("model = torch.nn.Sequential(model)\na.n = 10\na = [a]\nnets = nets[:2]\nnets[0].n = 77")
    ns = nb.ns
    assert ns["model"][0] is ns["net"]
    assert ns["a"][0] is ns["keep"]
    assert ns["keep"].n == 10
    assert ns["nets"] == ns["all_nets"][:2]
    assert ns["all_nets"][0].n == 77


def test_another_kernel_gets_the_values_themselves(nb: Notebook) -> None:
    nb.cell(HELD + "x = np.arange(12.0); t = torch.arange(4.)")
    prepared = nb.collect("0")
    trip = nb.ok("sub = [df, df]\nbest = nets[3]\nX = x.reshape(3, 4)\nrow = t[1:3]\nboth = (x, model)")
    assert trip.home_bytes < 20_000
    stream, buffers = trip.graph
    loaded = codec.load(stream, buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN)
    values: dict[str, Any] = loaded.values
    assert values["sub"][0] is values["sub"][1]
    assert values["sub"][0].equals(nb.ns["df"])
    assert values["sub"][0] is not nb.ns["df"]
    assert (values["best"].n, values["X"][1, 2], values["row"].tolist()) == (3, 6.0, [1, 2])
    assert values["both"][0].tolist() == list(range(12))
    assert prepared is not None


# ------------------------------------------------------------------------------------------------- memory
VIEWS = [
    ("x = np.arange(12.0)", "v = x.reshape(3, 4)"),
    ("x = np.arange(12.0).reshape(3, 4)", "v = x[1:, ::2]"),
    ("x = np.arange(12.0).reshape(3, 4)", "v = x.T"),
    ("x = np.arange(12.0).reshape(3, 4)", "v = x[::-1, ::-1]"),
    ("x = np.arange(12).reshape(3, 4)", "v = x.view('f8').ravel()[2:]"),
    ("x = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)", "v = x[1:, 1]"),
    ("x = np.asfortranarray(np.arange(12.0).reshape(3, 4))", "v = x[1]"),
    ("big = np.arange(20000.0).reshape(200, 100); x = big[:, 3]", "v = x[5:9]"),
    ("big = np.arange(2000000.0).reshape(2000, 1000); x = big[:, 3:7]", "v = x[5:9, 1:]"),
    ("big = np.arange(2000000.0).reshape(2000, 1000); x = big[:30]", "v = x.T[3]"),
    ("x = np.arange(0, 6).astype('M8[D]')", "v = x[2:]"),
    ("x = np.arange(12.0)", "v = {'deep': [x[3:5]]}['deep'][0]"),
    ("x = np.zeros(4, dtype=[('a', 'f4'), ('b', 'i4')])", "v = x['b']"),
    ("x = torch.arange(12.)", "v = x.view(3, 4)"),
    ("x = torch.arange(12.).view(3, 4)", "v = x.t()[1:]"),
    ("x = torch.nn.Parameter(torch.arange(12.))", "v = x.data"),
    ("x = torch.nn.Parameter(torch.arange(12.))", "v = x.detach()[3:]"),
    ("x = torch.arange(12.)", "v = x.numpy()"),
    ("x = torch.arange(12.).view(3, 4)", "v = x[1].numpy()"),
    ("x = np.arange(12.)", "v = torch.from_numpy(x)"),
    ("x = np.arange(12.).reshape(3, 4)", "v = torch.from_numpy(x)[:, 1]"),
    ("big = torch.arange(2000000.).view(2000, 1000); x = big[:, 3:7]", "v = x[5:9, 1:]"),
]


@pytest.mark.parametrize("through_files", [False, True])
def test_a_view_that_a_cell_makes_looks_at_the_notebooks_memory(nb: Notebook, through_files: bool) -> None:
    nb.cell("import numpy as np, torch, gc")
    for make, view in VIEWS:
        nb.cell(make)
        nb.cell(view.replace("v =", "plain ="))
        nb.ok(view, through_files=through_files)
        x, v, plain = (nb.ns[name] for name in ("x", "v", "plain"))
        assert type(v) is type(plain)
        strides = [each.strides if isinstance(each, np.ndarray) else each.stride() for each in (v, plain)]
        assert strides[0] == strides[1], view
        assert _shares(x, v), view
        assert _address(v) == _address(plain), view
        nb.cell("with torch.no_grad():\n    v[...] = 0")
        assert float(np.abs(np.asarray(plain).astype("f8")).sum()) == 0 if plain.dtype != "M8[D]" else True, view


def _address(view: Any) -> int:
    return view.data_ptr() if isinstance(view, torch.Tensor) else view.__array_interface__["data"][0]


def _shares(one: Any, other: Any) -> bool:
    arrays = [each.detach().numpy() if isinstance(each, torch.Tensor) else each for each in (one, other)]
    return np.shares_memory(*arrays)


def test_frames_and_modules_share_their_memory_with_what_is_taken_out_of_them(nb: Notebook) -> None:
    nb.cell(
        "import numpy as np, pandas as pd, torch\ndf = pd.DataFrame(np.zeros((4, 3)))\nnet = torch.nn.Linear(3, 2)\nser = pd.Series(np.zeros(3))"
    )
    nb.ok(
        "v, u, s = df.values, df.to_numpy(), ser.values\npart = df.iloc[1:3]\nw = net.weight.data\nrow = net.weight.detach()[1].numpy()"
    )
    ns = nb.ns
    assert np.shares_memory(ns["v"], ns["df"].values)
    assert np.shares_memory(ns["u"], ns["df"].values)
    assert np.shares_memory(ns["part"].values, ns["df"].values)
    assert np.shares_memory(ns["s"], ns["ser"].values)
    nb.cell("w[:] = 5")
    assert ns["net"].weight[0, 0] == 5
    assert ns["row"].tolist() == [5, 5, 5]


def test_frames_that_share_memory_go_on_copying_before_they_write(nb: Notebook) -> None:
    nb.cell("import numpy as np, pandas as pd\ndf = pd.DataFrame(np.zeros((4, 3)))")
    nb.ok("other = df.rename(columns={0: 'z'})\npart = df.iloc[1:3]\ncol = df[1]\nidx = pd.Index(df[2])")
    ns = nb.ns
    assert np.shares_memory(ns["col"].values, ns["df"].values)
    nb.cell("other.iloc[0, 0] = 5; part.iloc[0, 0] = 6; col.iloc[0] = 7")
    assert ns["df"].to_numpy().sum() == 0
    nb.ok("late = df[2]")
    nb.cell("df.iloc[0, 2] = 8")
    assert (ns["late"].sum(), ns["idx"][0]) == (0, 0)


def test_a_view_that_stands_for_one_on_a_gpu_knows_it(nb: Notebook) -> None:
    nb.cell(
        "import torch\nfrom jupyter_gpu_release.adapters.torch import device_marks as devices\nx = torch.arange(12.)\ndevices.mark_tensor(x, 'cuda:0')"
    )
    nb.ok("v = x[3:]")
    from jupyter_gpu_release.adapters.torch import device_marks

    assert device_marks.tensor_mark(nb.ns["v"]) == "cuda:0"
    assert _shares(nb.ns["x"], nb.ns["v"])


def test_what_refers_to_inputs_stays_small(nb: Notebook) -> None:
    nb.cell("import numpy as np\nx = np.zeros((1000, 1000))\nrows = [{'n': i} for i in range(3000)]")
    trip = nb.ok("a = x[5:7]\nb = rows[17]\nc = {'rows': rows[:2]}")
    assert sum(info.bytes for info in trip.results.values()) < 1000
    assert trip.home_bytes < 40_000
    assert nb.ns["b"] is nb.ns["rows"][17]


LARGE = """
import datetime, numpy as np, pandas as pd, torch
class Row:
    def __init__(self, i): self.i = i; self.tags = [i]
class Slotted:
    __slots__ = ("v",)
    def __init__(self, v): self.v = v
class Own:
    def __init__(self, v): self.v = v
    def __getstate__(self): return {"v": self.v}
big = [{"n": [i, [i], {}], "text": f"{i:090}"} for i in range(25000)]
deep = (
    [np.arange(12.0), torch.arange(6.0)],
    {"slots": Slotted([1]), "objects": np.array([[1], None], dtype=object), "df": pd.DataFrame({"a": [1.0, 2.0]})},
    Row(3), Own([5]), {1, "a", (2.0, None)}, frozenset("xy"), datetime.date(2020, 1, 1),
)
big.append({"deep": deep})
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
"""


def test_parts_deep_inside_very_many_objects_are_the_notebooks_own(nb: Notebook) -> None:
    nb.cell(LARGE)
    assert len(nb.collect("big").stream) > (2 << 20)
    trip = nb.ok(
        "some = [row['n'][1] for row in big[7:9]]\n(arr, tensor), inner, row, own, *_ = big[-1]['deep']\nx, listed = inner['df'], inner['objects'][0]\n"
        "held, tags = inner['slots'].v, [row.tags]\nview, tail = arr.reshape(3, 4), tensor[2:]\nlast = big[-1]\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=1)\nsub = big[11]['n'][2]"
    )
    ns = nb.ns
    (arr, tensor), inner, row, own, *_ = ns["big"][-1]["deep"]
    assert [some is each["n"][1] for some, each in zip(ns["some"], ns["big"][7:9], strict=True)] == [True, True]
    pairs = [
        (ns["arr"], arr),
        (ns["tensor"], tensor),
        (ns["row"], row),
        (ns["own"], own),
        (ns["x"], inner["df"]),
        (ns["listed"], inner["objects"][0]),
        (ns["held"], inner["slots"].v),
        (ns["tags"][0], row.tags),
        (ns["last"], ns["big"][-1]),
        (ns["sub"], ns["big"][11]["n"][2]),
    ]
    assert [a is b for a, b in pairs] == [True] * len(pairs)
    assert _shares(arr, ns["view"])
    assert _shares(tensor, ns["tail"])
    params = ns["optimizer"].param_groups[0]["params"]
    assert [a is b for a, b in zip(params, ns["model"].parameters(), strict=True)] == [True] * 4
    assert trip.notes == []


def test_what_is_a_copy_of_a_part_all_the_same_is_said(nb: Notebook) -> None:
    nb.cell(LARGE)
    trip = nb.ok("inside = big[-1]['deep'][3].v\nnumber, other = len(big), [1]")
    assert nb.ns["inside"] == [5]
    assert trip.notes == ["`inside` came back as a copy of a part of `big`"]


@pytest.mark.parametrize("kind", ["set", "frozenset"])
def test_an_object_of_a_large_set_is_never_taken_for_another(nb: Notebook, kind: str) -> None:
    nb.cell(
        "class Node:\n    def __init__(self, i): self.i, self.text = i, f'{i:090}'\n"
        f"g = {{'nodes': {kind}(map(Node, range(25000))), 'other': [[1]]}}"
    )
    assert len(nb.collect("g").stream) > (2 << 20)
    trip = nb.ok("best, other = max(g['nodes'], key=lambda node: node.i), {'in': g['other'][0]}")
    assert nb.ns["best"].i == 24999
    assert nb.ns["other"] == {"in": [1]}
    assert trip.notes == [f"`{name}` came back as a copy of a part of `g`" for name in ("best", "other")]


SUBCLASSES = """
import numpy as np, pandas as pd
class Plain(np.ndarray): pass
class Quantity(np.ndarray):
    def __array_finalize__(self, obj): self.unit = getattr(obj, "unit", None)
    def __reduce__(self):
        made = super().__reduce__()
        return made[0], made[1], (made[2], self.unit)
    def __setstate__(self, state):
        super().__setstate__(state[0])
        self.unit = state[1]
class Frame(pd.DataFrame):
    _metadata = ["tag"]
    @property
    def _constructor(self): return Frame
masked, hard = np.ma.masked_array(np.arange(12.0), mask=[0, 1] * 6), np.ma.array([1, 2], hard_mask=True, fill_value=7)
matrix, plain = np.matrix([[1.0, 2.0], [3.0, 4.0]]), np.arange(12.0).view(Plain)
plain.note, owner = "n", np.ndarray.__new__(Plain, 4)
owner[:] = 1
record = np.rec.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])
length = np.arange(5.0).view(Quantity)
length.unit = "m"
frame = Frame({"a": [1.0, 2.0]})
frame.tag, base = "t", np.arange(6.0)
"""


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arrays_of_classes_of_their_own_are_as_plain_ones(nb: Notebook) -> None:
    nb.cell(SUBCLASSES)
    names = ("masked", "hard", "matrix", "plain", "owner", "record", "length", "frame")
    nb.ok(f"held = [{', '.join(names)}]")
    ns = nb.ns
    assert [held is ns[name] for held, name in zip(ns["held"], names, strict=True)] == [True] * len(names)
    views = {
        "masked.reshape(3, 4)": "masked",
        "masked.data[2:]": "masked",
        "matrix.T": "matrix",
        "np.asarray(matrix)": "matrix",
        "plain.reshape(3, 4)": "plain",
        "owner[1:]": "owner",
        "record.a": "record",
        "base.view(np.matrix)": "base",
        "base[1:].view(Plain)": "base",
    }
    for view, name in views.items():
        nb.ok(f"v = {view}")
        made = nb.cell(view)
        assert type(ns["v"]) is type(made)
        assert np.shares_memory(np.asarray(ns["v"]), np.asarray(ns[name])), view
        assert np.array_equal(np.asarray(ns["v"]), np.asarray(made))
        nb.cell(f"old, view, held = {name}, v, ({name},)")
        nb.ok(f"{name}.flat[0] = {name}.flat[0]\nnp.asarray({name})[...] = np.asarray({name})[::-1].copy()")
        assert ns["old"] is ns[name] is ns["held"][0]
        assert np.shares_memory(np.asarray(ns["view"]), np.asarray(ns[name])), view
    nb.ok(
        "masked[0], masked[1] = np.ma.masked, 5\nplain.note = 'm'\nlength.unit = 'km'\nlength[0] = 3\nhard[0] = np.ma.masked"
    )
    assert nb.cell("masked.mask[0], masked[1], plain.note, length.unit, length[0], hard.hardmask, hard.fill_value") == (
        True,
        5.0,
        "m",
        "km",
        3.0,
        True,
        7,
    )


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_views_of_such_arrays_travel_with_them(nb: Notebook) -> None:
    nb.cell(
        SUBCLASSES
        + "rows, flat, part, whole = masked.reshape(3, 4), np.asarray(matrix), owner[2:], np.ma.array([1, 2])"
    )
    nb.ok(
        "rows[0, 0] = 50\nflat[0, 0] = 51\npart[0] = 52\nr = masked[0], matrix[0, 0], owner[2], whole.mask is np.ma.nomask, rows.fill_value"
    )
    assert nb.ns["r"] == (50.0, 51.0, 52.0, True, 1e20)
    assert nb.cell("masked[0], matrix[0, 0], owner[2]") == (50.0, 51.0, 52.0)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_view_whose_class_pickles_itself_in_its_own_way_says_that_it_is_a_copy(nb: Notebook) -> None:
    nb.cell(SUBCLASSES)
    trip = nb.ok("v, w = length[2:], length")
    assert nb.ns["w"] is nb.ns["length"]
    assert (nb.ns["v"].tolist(), nb.ns["v"].unit) == ([2, 3, 4], "m")
    assert trip.notes == ["`v` came back as a copy: Quantity pickles itself in a way of its own, with its values"]


def test_a_decorated_function_in_a_result_is_the_notebooks_own(nb: Notebook) -> None:
    nb.cell(
        "calls = []\ndef counted(function):\n    seen = []\n    def inner(*args):\n        seen.append(args)\n"
        "        calls.append(args)\n        return function(*args)\n    inner.seen = seen\n    return inner\n"
        "@counted\ndef area(w, h):\n    return w * h"
    )
    nb.gpu("from functools import partial\ndouble = partial(area, 2)\ntools = {'area': area}")
    assert nb.ns["double"].func is nb.ns["area"] is nb.ns["tools"]["area"]
    nb.gpu("triple = partial(area, 3)\ntriple(5)")
    assert nb.ns["triple"].func is nb.ns["double"].func is nb.ns["area"]
    assert nb.ns["area"].seen == nb.ns["calls"] == [(3, 5)]


def test_parts_of_classes_and_objects_in_the_last_value_are_the_notebooks(nb: Notebook) -> None:
    nb.cell("class Node:\n    known = {}\n    def __init__(self, left): self.left = left\ntree = Node(None)")
    nb.ok("tree.left = Node(1)\nNode.known['a'] = [1]\nNode.known, tree.left, Node")
    assert nb.cell("_[0] is Node.known, _[0], _[1] is tree.left, _[2] is Node") == (True, {"a": [1]}, True, True)


def test_ipython_goes_on_with_the_last_value_after_another_object_came_in_its_place(nb: Notebook) -> None:
    nb.cell("class Handle:\n    size = 1\n    def __del__(self): pass\nx = Handle()")
    nb.cell("x")  # fills `_`
    nb.ok("x.size = 2")
    assert (nb.ns["x"].size, nb.ns["_"] is nb.ns["x"]) == (2, True)
    nb.cell("'next'")
    assert nb.ns["_"] == "next"


def test_texts_that_a_module_compares_by_identity_stay_themselves(nb: Notebook) -> None:
    nb.cell(
        "import argparse, optparse\nparser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)\n"
        "action = parser.add_argument('--x', help=argparse.SUPPRESS)\nold = [optparse.NO_DEFAULT]"
    )
    asked = "vars(parser.parse_args([])), 'SUPPRESS' in parser.format_help(), old[0] is optparse.NO_DEFAULT"
    nb.ok(f"seen = {asked}\nmade = [argparse.SUPPRESS]\nparser.epilog = 'end'\nold.append(1)")
    assert nb.ns["seen"] == nb.cell(asked) == ({}, False, True)
    assert nb.cell("made[0] is argparse.SUPPRESS, action.help is argparse.SUPPRESS") == (True, True)
