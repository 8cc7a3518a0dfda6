"""What a cell did not change stays in the notebook as it is, its flags and its memory included."""

from __future__ import annotations

from typing import Any

import pytest
from round_trip import Notebook

IMPORTS = "import collections, numpy as np, pandas as pd, torch\nother = []\n"
#: ``look(things)``: all that binding could touch of them
LOOK = """
def look(things):
    found = []
    for thing in things:
        if isinstance(thing, np.ndarray):
            flags = thing.flags
            base = None if thing.base is None else id(thing.base)
            found.append((id(thing), thing.__array_interface__["data"], thing.strides, flags.writeable, flags.owndata, base))
        elif isinstance(thing, torch.Tensor):
            grad = None if thing.grad is None else (id(thing.grad), thing.grad._version)
            found.append((id(thing), thing.data_ptr(), thing._version, thing.requires_grad, thing.is_leaf, grad, vars(thing)))
        elif isinstance(thing, pd.Index):
            found.append((id(thing), thing.names, look([thing._data]) if type(thing) is pd.Index else repr(thing)))
        elif isinstance(thing, (pd.DataFrame, pd.Series)):
            blocks = thing._mgr.blocks
            axes = [id(axis) for axis in thing._mgr.axes] + look(thing._mgr.axes)
            shared = [block.refs.has_reference() for block in blocks]
            found.append((id(thing), id(thing._mgr), [*map(id, blocks)], look([b.values for b in blocks]), axes, shared, thing.attrs, repr(thing)))
        else:
            found.append((id(thing), repr(thing)))
    return found
"""  # noqa: E501
SETUPS = [
    ('df = pd.DataFrame({"a": [1., 2, 3], "b": [4., 5, 6]}); X = df[["a", "b"]].values', "df X", "X.sum()"),
    ('df = pd.DataFrame({"a": [1., 2, 3], "b": [4., 5, 6]}); X = df.values', "df X", "X.sum()"),
    ('df = pd.DataFrame({"a": [1., 2, 3], "b": [4., 5, 6]}); X = df.to_numpy()', "df X", "X.sum(), df.sum()"),
    ('df = pd.DataFrame({"a": range(1000)}); X = df["a"].values; s = df["a"]', "df X s", "X.sum(), s.sum()"),
    ('df = pd.DataFrame({"a": range(9)}); df.attrs["unit"] = "m"; part = df[2:5]', "df part", "part.sum()"),
    ("q = np.arange(4.); v = q.view(); v.flags.writeable = False", "q v", "v.sum()"),
    ("q = np.arange(400.); v = q[3:90]; v.flags.writeable = False; box = {'v': v}", "q v", "box['v'].sum()"),
    ("q = np.arange(4.); v = q[::-1]; q.flags.writeable = False", "q v", "q.sum(), v.sum()"),
    ("q = np.asfortranarray(np.ones((40, 30))); v = np.broadcast_to(q[0], (5, 30))", "q v", "v.sum()"),
    ("q = np.arange(3); i = pd.Index(q); s = pd.Series([1., 2, 3], index=i, name='s')", "q i s", "i.max(), s.sum()"),
    ("s = pd.Series([1, 2]); t = pd.DataFrame({'a': s}, index=s.index); s.index.name = 'k'", "s t", "t.sum()"),
    ("t = torch.ones(6, requires_grad=True); (t * 2).sum().backward(); d = t.detach()[1:]", "t d", "t.sum(), d.sum()"),
    ("t = torch.arange(6.); q = t.numpy(); v = q[1:]; v.flags.writeable = False", "t q v", "v.sum(), t.sum()"),
    ("m = np.ma.masked_array(np.arange(5.), [0, 1, 0, 0, 1]); q = m.data; k = m.mask", "m q k", "m.sum()"),
]


@pytest.mark.parametrize("cell", ["print({reads})", "print({reads}); other.append(1)", "made = [{reads}]; other = [2]"])
def test_binding_touches_nothing_that_a_cell_only_reads(nb: Notebook, cell: str) -> None:
    nb.cell(IMPORTS + LOOK)
    look = nb.ns["look"]
    for setup, names, reads in SETUPS:
        nb.cell(setup)
        things = [nb.ns[name] for name in names.split()]
        before = look(things)
        trip = nb.ok(cell.format(reads=reads))
        assert {"other", "made"}.issuperset(trip.results), setup
        assert [nb.ns[name] is thing for name, thing in zip(names.split(), things, strict=True)] == [True] * len(things)
        assert look(things) == before, setup


@pytest.mark.parametrize("values", ['df[["a", "b"]].values', "df.values", "df.to_numpy()"])
def test_a_frame_can_be_written_to_after_a_cell_has_read_its_values(nb: Notebook, values: str) -> None:
    nb.cell(f'{IMPORTS}df = pd.DataFrame({{"a": [1., 2, 3], "b": [4., 5, 6]}}); X = {values}')
    assert nb.ok("print(X.sum())").results == {}
    nb.cell('df.loc[0, "a"] = 50')
    assert nb.cell('df.loc[0, "a"], X[0, 0]') == (50, 50)  # it is a view, as without a GPU cell


def test_what_a_cell_makes_read_only_is_so(nb: Notebook) -> None:
    nb.cell(IMPORTS + "q = np.arange(4.); p = np.arange(4.)")
    nb.ok("q.flags.writeable = False; p += q")
    assert nb.cell("q.flags.writeable, p.flags.writeable, p.tolist()") == (False, True, [0, 2, 4, 6])


def test_the_owner_of_memory_that_is_seen_through_a_read_only_view_can_be_written_to(nb: Notebook) -> None:
    nb.cell(IMPORTS + "q = np.arange(4.); v = q.view(); v.flags.writeable = False")
    nb.ok("b = v.base")
    nb.cell("b[0] = 9")
    assert nb.cell("q[0], v[0], v.flags.writeable") == (9, 9, False)


# ------------------------------------------------------------------------------------------- beside the notebook
def test_what_a_run_did_not_change_keeps_what_was_written_meanwhile(nb: Notebook) -> None:
    names = [f"t{number}" for number in range(40)]
    nb.cell(IMPORTS + "\n".join(f"{name} = torch.randn(100 + {at})" for at, name in enumerate(names)))
    nb.cell(f"all_of_them = [{', '.join(names)}]")
    body = f"total = sum(each.sum() for each in ({', '.join(names)}))"
    trip = nb.ok(body, meanwhile="for each in all_of_them: each[:5] = 7")
    assert trip.results.keys() == {"total"}
    assert trip.notes == []
    assert nb.cell(f"all((each[:5] == 7).all() for each in ({', '.join(names)}))")


@pytest.mark.parametrize(
    ("setup", "body", "meanwhile", "asked", "wanted"),
    [
        ("y = torch.zeros(9); box = {'y': y, 'n': 0}", "box['n'] = 1", "y[0] = 5", "y[0].item() + box['n']", 6),
        (
            "y = torch.zeros(9); box = {'y': y, 'n': 0}",
            "y[0] = 5; n = box['n']",
            "box['n'] = 1",
            "y[0].item(), box['n']",
            (5, 1),
        ),
        ("y = [[1], [2]]", "y[0].append(3)", "y[1].append(4)", "y", [[1, 3], [2, 4]]),
        ("y = [[1], [2]]; z = y[0]", "z.append(3)", "y.pop(0)", "y, z", ([[2]], [1, 3])),
        (
            "y = torch.nn.Linear(2, 2)",
            "y.weight.data += 1",
            "y.eval()",
            "y.training, (y.weight > 0).all().item()",
            (False, True),
        ),
    ],
)
def test_what_each_side_has_changed_alone_is_there(
    nb: Notebook, setup: str, body: str, meanwhile: str, asked: str, wanted: Any
) -> None:
    nb.cell(IMPORTS + setup)
    trip = nb.ok(body, meanwhile=meanwhile)
    assert trip.notes == []
    assert nb.cell(asked) == wanted


@pytest.mark.parametrize(
    ("setup", "body", "meanwhile", "asked", "told"),
    [
        ("y = np.zeros(9)", "y += 1", "y[:5] = 7", "y[0], y[8]", "y"),
        ("y = torch.zeros(9); z = y", "y += 1", "z[:5] = 7", "y[0].item(), y[8].item(), y is z", "y"),
        ("y = np.zeros(9); v = y[2:]", "v += 1", "y[3] = 5", "y.tolist()", "v"),
        ("y = pd.DataFrame({'a': [1, 2]})", "y['b'] = 3", "y.loc[0, 'a'] = 9", "y.columns.tolist(), y.a.tolist()", "y"),
        ("class A: pass\ny = A(); y.part = part = []", "y.part.append(1)", "part.append(2)", "y.part", "y"),
    ],
)
def test_what_both_have_changed_stays_as_it_is_here_and_is_told(
    nb: Notebook, setup: str, body: str, meanwhile: str, asked: str, told: str
) -> None:
    nb.cell(IMPORTS + setup)
    wanted = nb.cell(f"import copy\n_copy = copy.deepcopy({told})\n{meanwhile}\n{asked}")
    nb.cell(setup)
    trip = nb.ok(f"{body}\nextra = 1", meanwhile=meanwhile)
    assert trip.notes == [
        f"`{told}` was changed here meanwhile, and by the run: what you changed stays; "
        f"the run's own: gpu_release.load('RUN')['{told}']"
    ]
    assert [info.name for info in trip.bound] == ["extra"]
    assert repr(nb.cell(asked)) == repr(wanted)


def test_what_only_the_run_has_changed_is_put_into_the_notebooks_own(nb: Notebook) -> None:
    nb.cell(
        IMPORTS + "y = torch.zeros(4); box = [y]; z = np.zeros(3)\nmodel = torch.nn.Linear(2, 2); weight = model.weight"
    )
    trip = nb.ok("y += 1; model.weight.data.fill_(2); z.sum()", meanwhile="z[0] = 4")
    assert trip.notes == []
    assert nb.cell("box[0].tolist(), z[0], weight.sum().item(), model.weight is weight") == ([1] * 4, 4, 8, True)


def test_what_cannot_be_pickled_any_more_was_changed(nb: Notebook) -> None:
    nb.cell("import threading\nbox = {'n': 0}")
    assert (
        "`box` was changed here meanwhile" in nb.ok("box['n'] = 1", meanwhile="box['lock'] = threading.Lock()").notes[0]
    )
    assert nb.cell("box['n'], len(box)") == (0, 2)


def test_a_value_that_looks_otherwise_each_time_is_bound(nb: Notebook) -> None:
    """Nobody can tell whether it was changed here; a run's results are not lost for it."""
    nb.cell("""import time
class Restless:
    def __init__(self): self.n = 0
    def __getstate__(self): return {"n": self.n, "looked": time.perf_counter_ns()}
    def __setstate__(self, state): self.n = state["n"]
r = Restless(); s = r""")
    nb.ok("r.n = 5", meanwhile="a = 1")
    assert nb.cell("r.n, s is r") == (5, True)
