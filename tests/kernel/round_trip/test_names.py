# ruff: noqa: E501 - a cell is one string
"""The user's semantics, there and back: a real shell, real forks of a clean process, real torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from round_trip import Notebook

from jupyter_gpu_release.errors import CannotSendError
from jupyter_gpu_release.submission.placeholders import NeedsRunError


# ------------------------------------------------------------------------------- what goes in and out
def test_names_in_and_out(nb: Notebook) -> None:
    nb.cell("a = 2\nunused = object()")
    trip = nb.ok("b = a + 1\nprint(b)")
    assert trip.output == "3\n"
    assert nb.ns["b"] == 3
    assert [info.name for info in trip.prepared.sent] == ["a"]
    assert list(trip.results) == ["b"]


def test_names_of_ipythons_that_a_user_takes_are_his(nb: Notebook) -> None:
    nb.cell("In = 2; quit = 3; x = 1")
    nb.ok("In += 1; Out = [In, quit]; exit = 4; x += 1; get_ipython = 'mine'")
    assert [nb.ns[name] for name in ("In", "Out", "quit", "exit", "get_ipython")] == [3, [3, 3], 3, 4, "mine"]
    nb.cell("Out.append(5)")
    nb.ok("n = len(Out); del Out, In, exit")
    assert nb.ns["n"] == 3
    assert not {"Out", "In", "exit"} & nb.ns.keys()
    nb.ok("n += 1")
    assert nb.ns["n"] == 4


def test_the_status_of_a_command_is_in_the_notebook_too(nb: Notebook) -> None:
    nb.cell("import sys")
    trip = nb.ok("get_ipython().system_raw('exit 3')")
    assert nb.ns["_exit_code"] == 3
    assert list(trip.results) == []
    nb.ok("r = _exit_code + 1")
    assert nb.ns["r"] == 4


def test_inputs_changed_in_place_come_back(nb: Notebook) -> None:
    nb.cell("import pandas as pd\nhistory = [1]\nd = {'a': 1}\ns = {1}\ndf = pd.DataFrame({'x': [1, 2]})\nsame = [5]")
    trip = nb.ok("history.append(2)\nd['b'] = 2\ns.add(2)\ndf['y'] = df['x'] * 2\nlen(same)")
    assert (nb.ns["history"], nb.ns["d"], nb.ns["s"]) == ([1, 2], {"a": 1, "b": 2}, {1, 2})
    assert list(nb.ns["df"]["y"]) == [2, 4]
    assert "same" not in trip.results


def test_unchanged_inputs_are_not_returned(nb: Notebook) -> None:
    nb.cell(
        "import numpy as np, pandas as pd, torch\nfrom torch import nn\narr = np.arange(100000.)\nt = torch.arange(5.)\n"
        "df = pd.DataFrame({'a': range(50), 'b': list('ab') * 25})\nmodel = nn.Linear(3, 3)\nst = {'x', 'y', 'z'}\n"
        "class P:\n    v = [1]\np = P()\nf = lambda q: q + 1\n"
    )
    trip = nb.ok("out = float(arr.sum() + t.sum() + df['a'].sum() + f(model(t[:3]).shape[0]) + len(st) + len(p.v))")
    assert list(trip.results) == ["out"]


def test_aliases_see_the_change(nb: Notebook) -> None:
    nb.cell("history = []\nh2 = history\nbox = {'h': history, 'l': [history]}\nclass T: pass\nt = T()\nt.h = history")
    nb.ok("history.append(1)")
    ns = nb.ns
    assert ns["h2"] is ns["history"] is ns["box"]["h"] is ns["box"]["l"][0] is ns["t"].h
    assert ns["h2"] == [1]


def test_a_rebound_name_leaves_its_alias_alone(nb: Notebook) -> None:
    nb.cell("history = [0]\nh2 = history")
    nb.ok("history = history + [1]")
    assert (nb.ns["history"], nb.ns["h2"]) == ([0, 1], [0])


def test_the_text_of_earlier_cells(nb: Notebook) -> None:
    for source in ("first = 1", "second = 2", "third = 3"):
        nb.cell(source)
    texts = [nb.ns[name] for name in ("_i", "_ii", "_i1")]
    assert texts == ["second = 2", "first = 1", "first = 1"]
    assert nb.ok("print([_i, _ii, _i1])\nfor _i in range(3): pass").output == f"{texts}\n"
    assert nb.ns["_i"] == "second = 2"  # IPython's own
    assert [info.name for info in nb.ok("print(first)").prepared.sent] == ["first"]


def test_deleted_names(nb: Notebook) -> None:
    nb.cell("big = [1]\nkept = [2]")
    nb.ok("x = len(big)\ndel big")
    assert "big" not in nb.ns
    assert nb.ns["kept"] == [2]


def test_names_bound_by_exec_and_magics(nb: Notebook) -> None:
    trip = nb.ok("exec('made = 3')\nglobals()['other'] = 4\n%time timed = 5\n%env JGR_X=1\nfiles = !echo hello")
    assert (nb.ns["made"], nb.ns["other"], nb.ns["timed"]) == (3, 4, 5)
    assert list(nb.ns["files"]) == ["hello"]
    assert "_exit_code" not in trip.results


def test_magic_text_names_are_sent(nb: Notebook) -> None:
    nb.cell("def f(n): return n + offset\noffset = 10\nw = 1\nlimit = 2\nname = 'you'")
    trip = nb.ok("%timeit -n 1 -r 1 f(w)\nprint(eval('w + limit'))\n!echo hi {name} $limit")
    assert "3\n" in trip.output
    assert {"f", "offset", "w", "limit", "name"} <= {info.name for info in trip.prepared.sent}


def test_explicit_choice_of_names(nb: Notebook) -> None:
    nb.cell("import math\na = 1\nb = 2\nc = 3")
    trip = nb.gpu("x = a\nmath.pi\ny = b", include=["a"], out=["x", "zzz"])
    assert "NameError" in trip.error
    assert [info.name for info in trip.prepared.sent] == ["a"]
    assert nb.ns["x"] == 1
    assert any("zzz" in note for note in trip.notes)
    trip = nb.ok("p, q = a, 1", skip=["q"], include_more=["c"])
    assert {info.name for info in trip.prepared.sent} == {"a", "c"}
    assert nb.ns["p"] == 1
    assert "q" not in nb.ns


def test_last_output_is_sent_and_returns_where_the_cell_binds_it(nb: Notebook) -> None:
    nb.ns["_"], nb.ns["_1"] = 41, 5
    nb.ok("y = _ + 1\n_1 = 6")
    assert (nb.ns["y"], nb.ns["_"], nb.ns["_1"]) == (42, 41, 5)
    nb.ok("for _ in range(3): pass")
    assert nb.ns["_"] == 2
    nb.ok("x = 1")
    assert nb.ns["_"] == 2
    nb.ok("del _, _1")
    assert not {"_", "_1"} & nb.ns.keys()


# ----------------------------------------------------------------------------- functions and globals
COUNTER = "counter = 0\nscale = 2\ndef bump():\n    global counter\n    counter += 1\n    return counter * scale\n"


def test_functions_that_the_notebook_imports_from_ipython_are_sent(nb: Notebook) -> None:
    nb.cell("from IPython.display import clear_output")
    nb.ok("name = clear_output.__name__, open('x.txt', 'w').close()")
    assert nb.ns["name"] == ("clear_output", None)


def test_global_counter(nb: Notebook) -> None:
    nb.cell(COUNTER)
    nb.ok("bump()\nbump()")
    assert nb.ns["counter"] == 2
    assert nb.ns["bump"]() == 6
    assert nb.ns["counter"] == 3


def test_a_global_redefined_later_is_seen(nb: Notebook) -> None:
    nb.cell(COUNTER)
    nb.ok("r = bump()\ndef doubled(): return bump() * factor\nfactor = 10\nholder = {'f': bump}")
    nb.cell("scale = 100\nfactor = 1")
    assert nb.ns["doubled"]() == 200
    assert nb.ns["holder"]["f"] is nb.ns["bump"]
    trip = nb.ok("r = doubled()")
    assert nb.ns["r"] == 300
    assert {"bump", "scale", "factor", "counter"} <= {info.name for info in trip.prepared.sent}


def test_functions_in_objects_and_methods_are_followed(nb: Notebook) -> None:
    nb.cell(
        "import math\nbase = 5\ndef helper(x): return x + base + math.floor(0.5)\n"
        "class Job:\n    def run(self): return helper(self.n)\n    def __init__(self, n): self.n = n\n"
        "jobs = {'a': Job(1).run, 'b': lambda: helper(2)}\n"
    )
    nb.ok("r = jobs['a'](), jobs['b']()")
    assert nb.ns["r"] == (6, 7)


def test_closures_share_their_cells(nb: Notebook) -> None:
    nb.cell(
        "def make():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1\n        return n\n"
        "    def get(): return n\n    def rec(k): return k and rec(k - 1)\n    return inc, get, rec\ninc, get, rec = make()"
    )
    nb.ok("inc()\ninc()\nx = get(), rec(5)")
    assert nb.ns["x"] == (2, 0)
    assert (nb.ns["get"](), nb.ns["inc"](), nb.ns["get"]()) == (2, 3, 3)


def test_function_attributes_defaults_and_decorators(nb: Notebook) -> None:
    nb.cell(
        "import functools\ncalls = []\ndef logged(f):\n    @functools.wraps(f)\n    def inner(*a):\n"
        "        calls.append(f.__name__)\n        return f(*a)\n    return inner\n"
        "@logged\ndef add(a, b=1, *, c=2): return a + b + c\ndef acc(x, seen=[]):\n    seen.append(x)\n    return seen\n"
        "@functools.lru_cache(maxsize=8)\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "half = functools.partial(add, 10)\nacc.tag = 'a'\n"
    )
    nb.ok("r = add(1), half(), fib(20)\nacc(1)\nacc.tag = 'b'")
    assert nb.ns["r"] == (4, 13, 6765)
    assert nb.ns["calls"] == ["add", "add"]
    assert nb.ns["acc"](2) == [1, 2]
    assert nb.ns["acc"].tag == "b"
    assert nb.ns["add"](1) == 4
    assert nb.ns["calls"] == ["add", "add", "add"]
    assert nb.ns["fib"].cache_parameters()["maxsize"] == 8


def test_async_cells_and_generator_functions(nb: Notebook) -> None:
    nb.cell(
        "import asyncio\nasync def later(x):\n    await asyncio.sleep(0)\n    return x\ndef gen(n): yield from range(n)"
    )
    nb.ok("r = await later(3)\ns = list(gen(3))")
    assert nb.ns["r"] == 3
    assert nb.ns["s"] == [0, 1, 2]


# ------------------------------------------------------------------------------------------ salvage
@pytest.mark.parametrize("error", ["1 / 0", "raise KeyboardInterrupt", "raise SystemExit(3)", "undefined_name"])
def test_values_survive_an_error(nb: Notebook, error: str) -> None:
    nb.cell("history = []")
    trip = nb.gpu(f"model = {{'w': 3}}\nhistory.append(1)\n{error}\nnever = 1")
    assert trip.error
    assert nb.ns["model"] == {"w": 3}
    assert nb.ns["history"] == [1]
    assert "never" not in nb.ns


def test_what_cannot_be_pickled_is_named_and_skipped(
    nb: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trip = nb.ok(
        "import threading, sqlite3, socket\nlock = threading.Lock()\ncfg = {'a': [1, {'lock': lock}]}\n"
        "g = (i for i in range(3))\ncon = sqlite3.connect(':memory:')\nf = open('out.txt', 'w')\nok = 1\n"
        "class W:\n    def __init__(self): self.inner = {'s': socket.socket()}\nw = W()"
    )
    assert nb.ns["ok"] == 1
    text = "\n".join(trip.notes)
    assert "`cfg['a'][1]['lock']`: cannot pickle '_thread.lock' object" in text
    assert "`w.inner['s']`: cannot pickle 'socket' object" in text
    assert "`g`" in text
    assert "`con`" in text
    assert "`f`: cannot pickle an open file ('out.txt')" in text
    assert all("could not return" in repr(nb.ns[name]) for name in ("cfg", "g", "con", "f", "w"))


def test_names_that_a_cell_binds_and_unbinds_are_unbound_in_the_notebook_too(nb: Notebook) -> None:
    nb.cell("e = 'old'; x = [1]; y = 3; z = 4; w = 5; v = 6")
    nb.ok(
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    pass\nx = 2\ndel x\nif False:\n    y = 1\n    del y\n"
        "z = 1\ndel z\nz = 7\ntry:\n    pass\nexcept ValueError as w:\n    pass\nfor v in range(3):\n    pass\ndel v"
    )
    assert [name in nb.ns for name in "exyzwv"] == [False, False, True, True, True, False]
    assert (nb.ns["y"], nb.ns["z"], nb.ns["w"]) == (3, 7, 5)


def test_a_name_whose_new_value_cannot_return_says_so_and_is_not_the_old_one(nb: Notebook) -> None:
    nb.cell("import threading\nresult = 'old'; other = {'a': 1}")
    trip = nb.ok("result = {'lock': threading.Lock()}\nfresh = (i for i in range(3))\nother['a'] = 2")
    assert any("result" in note and "not returned" in note for note in trip.notes)
    ended = nb.ok("import weakref\nclass Owner: pass\nowner = Owner(); end = weakref.finalize(owner, print)")
    assert ["without its `weakref.finalize`" in note for note in ended.notes] == [True]
    for name in ("result", "fresh"):
        assert f"`{name}` was made in a GPU cell and could not return" in repr(nb.ns[name])
        with pytest.raises(CannotSendError, match="could not return"):
            len(nb.ns[name])
        with pytest.raises(CannotSendError, match="could not return"):
            nb.cell(f"list({name})")
    assert nb.ns["other"] == {"a": 2}
    nb.ok("result = 3\nfresh = [1]")
    assert (nb.ns["result"], nb.ns["fresh"]) == (3, [1])
    nb.ok("bad = threading.Lock()")
    with pytest.raises(NeedsRunError) as caught:
        nb.gpu("bad.acquire()")
    assert "could not return" in str(caught.value.refusal)
