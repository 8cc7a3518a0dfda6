# ruff: noqa: E501 - a cell is one string
"""Values whose own way of pickling loses something: exceptions, optimisers with a scheduler."""

from __future__ import annotations

import warnings

import pytest
from round_trip import Notebook


def test_exceptions_are_values(nb: Notebook) -> None:
    nb.cell(
        "class MyErr(Exception):\n    def __init__(self, code, msg):\n        super().__init__(msg)\n        self.code = code\n"
        "class FileErr(OSError):\n    def __init__(self, code, *rest):\n        super().__init__(2, 'gone', 'a.txt')\n        self.code = code\n"
        "mine = MyErr(7, 'sent')"
    )
    nb.ok(
        "seen = mine.code, str(mine)\n"
        "try:\n    try:\n        1 / 0\n    except ZeroDivisionError as z:\n        raise MyErr(5, 'bad') from z\nexcept MyErr as e:\n    err = e\n"
        "try:\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        raise KeyError(1)\nexcept KeyError as e:\n    during = e\n"
        "err.self = err\nold, group, key = FileErr(3), ExceptionGroup('g', [ValueError(1)]), KeyError('k')\n"
        "try:\n    b'\\xff'.decode()\nexcept UnicodeDecodeError as e:\n    uni = e\n"
        "import threading\nlinked = MyErr(1, 'l')\nlinked.__cause__ = ValueError(threading.Lock())"
    )
    ns = nb.ns
    assert ns["seen"] == (7, "sent")
    err = ns["err"]
    assert (type(err), err.code, err.args, str(err)) == (ns["MyErr"], 5, ("bad",), "bad")
    assert err.self is err
    assert err.__traceback__ is None
    assert (type(err.__cause__), err.__context__, err.__suppress_context__) == (ZeroDivisionError, err.__cause__, True)
    during = ns["during"]
    assert (type(during.__context__), during.__cause__, during.__suppress_context__) == (ZeroDivisionError, None, False)
    assert (ns["old"].code, ns["old"].errno, ns["old"].filename) == (3, 2, "a.txt")
    assert (ns["group"].exceptions[0].args, ns["key"].args, ns["uni"].start) == ((1,), ("k",), 0)
    assert (ns["linked"].code, ns["linked"].__cause__) == (1, None)


def test_a_scheduler_finds_its_optimiser_as_it_left_it(nb: Notebook) -> None:
    nb.cell(
        "import torch, copy\nfrom torch import nn\nnet = nn.Linear(2, 2)\nopt = torch.optim.SGD(net.parameters(), lr=1.0)\n"
        "sched = torch.optim.lr_scheduler.StepLR(opt, 1)"
    )
    body = "import warnings\nwith warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n    {}\nsaid = [str(w.message) for w in caught]\ndel caught"
    nb.ok(body.format("opt.step(); sched.step()"))
    assert nb.ns["said"] == []
    assert nb.ns["opt"].param_groups[0]["lr"] == 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nb.cell("opt.step(); sched.step()")
    nb.cell("net = nn.Linear(2, 2)\nopt = torch.optim.SGD(net.parameters(), lr=1.0)")
    nb.ok("sched = torch.optim.lr_scheduler.StepLR(opt, 1)\nopt.step()")
    nb.ok(body.format("sched.step()"))
    assert nb.ns["said"] == []


def test_what_accelerate_keeps_in_its_classes_travels_with_an_accelerator(nb: Notebook) -> None:
    pytest.importorskip("accelerate")
    nb.ok(
        "from accelerate import Accelerator\nfrom accelerate.state import AcceleratorState, GradientState, PartialState\n"
        "made = Accelerator(cpu=True, gradient_accumulation_steps=3)\nplaces = [made.state, made.gradient_state]"
    )
    nb.ok(
        "seen = [AcceleratorState().num_processes, GradientState().num_steps, str(PartialState().device)]\n"
        "one = vars(made.state) is vars(AcceleratorState()) is AcceleratorState._shared_state\n"
        "made.gradient_state.plugin_kwargs['num_steps'] = 4\nmade.state.mark = 'here'"
    )
    assert nb.ns["seen"] == [1, 3, "cpu"]
    assert nb.ns["one"]
    nb.cell("state = AcceleratorState()\nsteps, mark = GradientState().num_steps, state.mark")
    assert (nb.ns["steps"], nb.ns["mark"]) == (4, "here")
    assert nb.ns["places"][0] is nb.ns["made"].state


def test_a_value_that_warns_when_it_is_pickled_or_loaded_warns_nobody(nb: Notebook) -> None:
    nb.cell(
        "class Old:\n"
        "    def __getstate__(self):\n        import warnings\n        warnings.warn('pickled', FutureWarning)\n        return {'x': 1}\n"
        "    def __setstate__(self, state):\n        import warnings\n        warnings.warn('loaded', FutureWarning)\n        self.x = state['x']\n"
        "old = Old()"
    )
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        trip = nb.ok("old.x += 1\nnew = Old()\nimport warnings\nwarnings.warn('mine', FutureWarning)")
        assert list(warnings.filters) == before
    assert [str(each.message) for each in shown] == []
    assert "mine" in trip.output
    assert "pickled" not in trip.output
    assert "loaded" not in trip.output
    assert nb.ns["new"].x == 1


def test_a_set_has_its_order_there_and_back(nb: Notebook) -> None:
    nb.cell("words = {n * n * n for n in range(2000)}\nboxes = [{n * n * k for n in range(20)} for k in range(1, 20)]")
    before = list(nb.ns["words"]), list(map(list, nb.ns["boxes"]))
    assert list(set(before[0])) != before[0]
    nb.ok(
        "there = list(words), list(map(list, boxes))\nnew = {n * 32 - 1 for n in words} - {31}\n"
        "boxes[3].update(words)\norders = list(new), list(boxes[3])"
    )
    assert nb.ns["there"] == before
    assert nb.ns["orders"] == (list(nb.ns["new"]), list(nb.ns["boxes"][3]))


def test_data_sets_of_xgboost_travel(nb: Notebook) -> None:
    pytest.importorskip("xgboost")
    nb.gpu(
        "import numpy as np, xgboost as xgb\nx = np.arange(40.0).reshape(20, 2)\n"
        "train = xgb.DMatrix(x, label=x[:, 0] > 9, weight=np.ones(20), feature_names=['a', 'b'])\nsame = [train]"
    )
    trip = nb.gpu("booster = xgb.train({'objective': 'binary:logistic'}, train, 2)\ntrain.set_label(np.ones(20))")
    assert not trip.error
    train = nb.ns["train"]
    assert nb.ns["same"][0] is train
    assert (train.num_row(), train.feature_names, train.get_label().mean(), train.get_weight().sum()) == (
        20,
        ["a", "b"],
        1,
        20,
    )
    assert nb.ns["booster"].predict(train).shape == (20,)
    nb.gpu("booster.update(train, 2)")  # what it was is freed once
    assert nb.ns["booster"].num_boosted_rounds() == 3


def test_an_exception_keeps_its_slots_and_the_names_that_python_set(nb: Notebook) -> None:
    nb.cell(
        "class Slotted(Exception):\n    __slots__ = ('x',)\nslotted = Slotted('t')\nslotted.x = 5\n"
        "try:\n    import no_such_module\nexcept ImportError as error:\n    missing = error\n"
    )
    nb.ok("there = slotted.x, missing.name\ntry:\n    undefined\nexcept NameError as error:\n    unknown = error")
    ns = nb.ns
    assert (ns["there"], ns["slotted"].x, ns["unknown"].name) == ((5, "no_such_module"), 5, "undefined")


def test_after_a_reset_of_the_notebooks_names(nb: Notebook) -> None:
    """IPython takes ``__spec__`` and the like away as well."""
    nb.cell("%reset -f")
    nb.cell(
        "import contextvars, types\nv = contextvars.ContextVar('v')\nm = types.ModuleType('m'); del m.__spec__; m.x = 2"
    )
    nb.ok("v.set(3); d = m.x")
    assert nb.cell("v.get(), d") == (3, 2)
