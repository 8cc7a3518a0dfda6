# ruff: noqa: E501 - a cell is one string
"""Names that a cell reaches through the namespace, or by a text."""

from __future__ import annotations

from pathlib import Path

import pytest
from round_trip import Notebook

from jupyter_gpu_release.serialization.pickler import GraphPickler

_NOTEBOOK = """
import math, threading
import numpy as np, pandas as pd
lr, unused, text, where = 0.5, [1], "lr * 2 + math.floor(1.5)", "a > @lr"
table = pd.DataFrame({"a": [0, 1]})
def act_relu(x): return max(x, 0)
def act_square(x): return x * scale
scale = 3
def pick(name): return globals()["act_" + name]
def default(): return globals().get("lr", 0.1)
class Base: pass
class Second(Base): pass
class First(Base): pass
"""


@pytest.mark.parametrize(
    ("body", "value", "sent"),
    [
        ("r = globals().get('lr', 0.1)", 0.5, "lr"),
        ("r = 'lr' in globals() and 'unused' in dir()", True, "lr unused"),
        ("import sys\nr = sys.modules['__main__'].lr", 0.5, "lr"),
        ("r = get_ipython().user_ns['lr']", 0.5, "lr"),
        ("r = default()", 0.5, "default lr"),
        ("r = eval(text)", 2.0, "lr text"),
        ("r = len(table.query(where))", 1, "lr table where"),
        ("r = [each.__name__ for each in Base.__subclasses__()]", ["Second", "First"], "Base First Second"),
        ("r = list(vars()).count('lr')", 1, None),
        ("r = pick('square')(2)", 6, None),
        ("name = 'un' + 'used'\nr = eval(name)", [1], None),
    ],
)
def test_names_looked_up_are_there(nb: Notebook, body: str, value: object, sent: str | None) -> None:
    nb.cell(_NOTEBOOK)
    trip = nb.ok(body)
    assert nb.ns["r"] == value
    went = {info.name for info in trip.prepared.sent}
    assert went == set(sent.split()) if sent is not None else went >= {"lr", "unused", "act_relu", "First"}
    assert trip.prepared.warnings == []
    assert set(trip.results) <= {"r", "name"}


def test_what_does_not_go_along_is_said_before(nb: Notebook) -> None:
    nb.cell(
        f"{_NOTEBOOK}lock = threading.Lock()\nbig = np.zeros(1 << 20, 'u1')\nmany = [np.ones(1 << 19, 'u1') for _ in '123']\napi_key = 'k'"
    )
    trip = nb.ok(
        "r = [n for n in ('lock', 'big', 'many', 'lr', 'api_key') if n in list(globals())]", implicit_bytes=1 << 18
    )
    assert nb.ns["r"] == ["lr"]
    assert trip.prepared.warnings == [
        "`api_key` looks like a secret and is held back: --in +api_key sends it",
        "this code looks names up by text, which could mean any; not sent: `lock` (cannot pickle '_thread.lock' object), `big` (1 MiB), "
        "`many` (1.5 MiB) (--in +NAME sends one)",
    ]
    assert nb.ok("r = 'big' in list(globals())", implicit_bytes=1 << 18, include_more=["big"])
    assert nb.ns["r"] is True
    assert {info.name for info in nb.collect("list(globals())", include=["lr"]).sent} == {"lr"}


def test_a_name_that_may_not_be_needed_does_not_fail_the_cell(nb: Notebook) -> None:
    nb.cell(
        "import sys, types\nmissing = types.ModuleType('only_here'); sys.modules['only_here'] = missing\n"
        "exec('class Thing: pass', vars(missing))\nthing, x = missing.Thing(), [1]"
    )
    trip = nb.ok("r = eval('x' + '[0]'), str(type(thing_ := globals()['th' + 'ing']))\ndel thing_")
    assert nb.ns["r"][0] == 1
    assert "`thing` is a placeholder in this cell: no module named only_here" in trip.notes
    assert "only_here" not in trip.prepared.imports


def test_a_script_that_runs_among_the_notebooks_names_finds_them(nb: Notebook, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("b = a + 1\nc.append(b)\n")
    nb.cell("a, c = 3, []")
    trip = nb.ok(f"%run -i {script}")
    assert (nb.ns["b"], nb.ns["c"]) == (4, [4])
    assert {info.name for info in trip.prepared.sent} >= {"a", "c"}
    assert not nb.collect(f"%run {script}").sent


def test_words_in_annotations_name_no_data(nb: Notebook) -> None:
    """``Literal["train"]`` means no frame of that name, nor ``Float[Tensor, "batch width"]`` a tensor."""
    nb.cell(
        "import typing\nclass Row: pass\ntrain = batch = 'x' * 100_000\nHalf = typing.Literal['train']\n"
        "def split(half: typing.Literal['train'], shape: 'batch width', row: 'Row') -> Half: return half"
    )
    for body, sent in [
        ("split('train')", {"Row", "split"}),
        ("def load(half: typing.Literal['train'], row: 'Row') -> 'batch': pass", {"Row"}),
    ]:
        assert {info.name for info in nb.collect(body).sent} == sent


def test_what_a_cell_needs_goes_along_whatever_else_might_be_looked_up(nb: Notebook) -> None:
    """Where something is unpickled functions that nothing in the cell names go along, with little."""
    nb.cell(
        "import pickle, threading\nimport numpy as np\nlock, big = threading.Lock(), np.ones(1_000_000)\ndef first(): return big, lock\n"
        "class Data:\n    def load(self): return big[0], pickle.loads(b'N.')\ndata = Data()"
    )
    trip = nb.ok("x = data.load()")
    assert nb.ns["x"] == (1.0, None)
    assert "first" in {info.name for info in trip.prepared.sent}
    assert trip.prepared.warnings == trip.notes == []


def test_numpy_loads_no_pickle_unless_it_is_told_to(nb: Notebook) -> None:
    nb.cell("import numpy as np\nimport os\ndef plot(): pass\npath = 'a.npy'\ndef read(path): return np.load(path)")
    for body, sent in [
        ("a = np.load(path)", {"path"}),
        ("a = read(path)", {"path", "read"}),
        ("a = np.load(path, allow_pickle=True)", {"path", "plot", "read"}),
    ]:
        assert {info.name for info in nb.collect(body).sent} - {"np"} == sent, body


def test_what_might_be_looked_up_is_tried_together(nb: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memo is copied before each try, so that one by one many definitions would take seconds."""
    copies, copy = [], GraphPickler.copy_memo
    monkeypatch.setattr(GraphPickler, "copy_memo", lambda pickler: copies.append(1) or copy(pickler))
    functions = "\n".join(f"def f{number}(): return {number}" for number in range(200))
    nb.cell(
        f"import pickle, threading\nlock = threading.Lock()\n{functions}\ndef bad(x=lock): pass\ndata = pickle.dumps(f7)"
    )
    trip = nb.ok("r = pickle.loads(data)()")
    assert nb.ns["r"] == 7
    sent = {info.name for info in trip.prepared.sent}
    assert sent >= {f"f{number}" for number in range(200)}
    assert "bad" not in sent
    assert len(copies) < 50


@pytest.mark.parametrize(
    ("magic", "left"), [("%reset_selective -f ^x", ["y", "z"]), ("%reset -f", ["z"]), ("%xdel xa", ["xb", "y", "z"])]
)
def test_names_that_a_magic_forgets_are_gone_from_the_notebook(nb: Notebook, magic: str, left: list[str]) -> None:
    nb.cell("xa = [1]; xb = 2; y = 3")
    nb.ok(f"{magic}\nz = 1")
    assert [name for name in ("xa", "xb", "y", "z") if name in nb.ns] == left
