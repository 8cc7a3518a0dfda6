# ruff: noqa: E501 - a cell is one string
"""Device choices, random states and settings, there and back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from optional_libraries import torch
from round_trip import Notebook

from jupyter_gpu_release.adapters.torch import device_marks

# ----------------------------------------------------------------------------------------- devices
DEVICE = 'import torch\ndevice = "cuda" if torch.cuda.is_available() else "cpu"\n'


GPU_HERE = "import torch; torch.cuda.is_available = lambda: True"


def test_device_choices_are_evaluated_again(nb: Notebook) -> None:
    nb.cell(
        DEVICE
        + "use_cuda = torch.cuda.is_available()\ndev = torch.device('cuda:0' if use_cuda else 'cpu')\nfixed = 'cpu'"
    )
    nb.cell("def where(): return dev\nfixed = 'cpu'")
    trip = nb.ok("d = device, str(where()), fixed", hardware=GPU_HERE)
    assert set(trip.prepared.reevaluate) == {"device", "dev", "use_cuda"}
    assert nb.ns["d"] == ("cuda", "cuda:0", "cpu")
    assert "`device` was evaluated again for this cell: cuda" in trip.notes
    assert nb.ns["device"] == "cpu"
    nb.cell("device = 'cpu'")
    assert "device" not in nb.collect("device").reevaluate


def test_a_device_made_of_its_own_name(nb: Notebook) -> None:
    nb.cell(DEVICE)
    nb.cell("device = torch.device(device)")
    nb.ok("d = device.type", hardware=GPU_HERE)
    assert (nb.ns["d"], nb.ns["device"].type) == ("cuda", "cpu")


@pytest.mark.parametrize(
    "source",
    [
        "import torch as t\nif t.cuda.is_available():\n    device = 'cuda'\nelse:\n    device = 'cpu'",
        "from torch.cuda import is_available\ndevice = 'cpu'\nif is_available(): device = 'cuda'",
        "import torch\ndef pick():\n    return 'cuda' if torch.cuda.is_available() else 'cpu'\ndevice = pick()",
        "import torch\nkind, device = 'x', ('cuda' if torch.cuda.is_available() else 'cpu')",
        "import torch\nn = torch.cuda.device_count\nok = torch.cuda.is_available()\nnames = ['cpu', 'cuda']\ndevice = names[ok]",
    ],
)
def test_ways_to_choose_a_device(nb: Notebook, source: str) -> None:
    nb.cell(source)
    nb.ok("d = device", hardware=GPU_HERE)
    assert nb.ns["d"] == "cuda"


@pytest.fixture
def _device_of_before() -> Iterator[None]:
    yield
    torch.set_default_device("cpu")
    torch.set_default_device(None)


@pytest.mark.usefixtures("_device_of_before")
def test_the_default_device_goes_there_and_back(nb: Notebook) -> None:
    nb.cell("import torch; torch.set_default_device('meta')")
    nb.ok("found = torch.ones(1).device.type, torch.get_default_device().type; torch.set_default_device(None)")
    assert nb.cell("found, torch.ones(1).device.type") == (("meta", "meta"), "cpu")


@pytest.mark.usefixtures("_device_of_before")
def test_a_gpu_as_default_device_waits_for_the_next_gpu_cell(nb: Notebook) -> None:
    nb.cell("import torch; w = torch.ones(3); v = w[1:]; n = w.numpy(); g = torch.Generator()")
    nb.ok("w += 1; torch.set_default_device('cuda')", hardware=GPU_HERE)
    assert nb.cell("torch.zeros(1).device.type, w.tolist(), v.tolist()") == ("cpu", [2.0] * 3, [2.0] * 2)
    nb.ok("found = str(torch._GLOBAL_DEVICE_CONTEXT.device_context.device); v *= 2; g.seed()", hardware=GPU_HERE)
    assert nb.cell("found, w.tolist(), n.tolist()") == ("cuda", [2.0, 4.0, 4.0], [2.0, 4.0, 4.0])
    nb.cell("torch.set_default_device('cpu')")
    nb.ok("found = torch.zeros(1).device.type", hardware=GPU_HERE)
    assert nb.ns["found"] == "cpu"


def test_a_number_of_devices_that_a_gpu_cell_counted_stays_what_it_was(nb: Notebook) -> None:
    two = GPU_HERE + "; torch.cuda.device_count = lambda: 2"
    nb.ok("import torch\nn = torch.cuda.device_count()\ndevice = 'cuda:1' if n > 1 else 'cpu'", hardware=two)
    nb.cell("1")  # history is read up to the cell that runs
    trip = nb.ok("seen = n, device", hardware=GPU_HERE)
    assert nb.ns["seen"] == (2, "cuda:1"), trip.notes
    nb.cell("n = torch.cuda.device_count()")  # of this machine: it says nothing of the nodes
    nb.ok("seen = n, device", hardware=two)
    assert nb.ns["seen"] == (2, "cuda:1")


def test_only_device_choices_are_evaluated_again(nb: Notebook) -> None:
    nb.cell(
        "import torch\nruns = []\ndef train():\n    runs.append(1)\n    return {'acc': 0.5} if torch.cuda.is_available() else {'acc': 0.1}\n"
        "model = torch.nn.Linear(1, 1).to('cuda' if torch.cuda.is_available() else 'cpu')\nres = train()\ndevice = 'cpu'"
    )
    assert nb.collect("model, res, device").reevaluate == {}


def test_a_device_that_comes_home_is_a_cpu_one_and_goes_back(nb: Notebook) -> None:
    trip = nb.ok(
        "import torch\ndevice = 'cuda:1'\ndev = torch.device('cuda')\nclass T: pass\nt = T()\nt.device = torch.device('cuda:0')"
    )
    ns = nb.ns
    assert ns["device"] == "cpu"
    assert ns["dev"].type == "cpu"
    assert ns["t"].device.type == "cpu"
    assert any("`device` is cuda:1 in GPU cells and cpu in the notebook" in note for note in trip.notes)
    assert any("`dev` is cuda in GPU cells" in note for note in trip.notes)
    assert device_marks.torch_device_mark(ns["dev"]) == "cuda"
    assert device_marks.torch_device_mark(ns["t"].device) == "cuda:0"
    assert nb.collect("print(device)").reevaluate == {"device": "'cuda:1'"}
    nb.cell("device = 'cpu'")
    assert nb.collect("print(device)").reevaluate == {}


def test_what_was_put_on_a_chosen_device_is_marked_for_the_gpu_cell(nb: Notebook) -> None:
    nb.cell(
        DEVICE
        + "from torch import nn\nmodel = nn.Linear(2, 2).to(device)\nx = torch.ones(2).to(device)\ny = torch.ones(2)\nother = nn.Linear(1, 1)"
    )
    nb.collect("model(x) + y + other.weight[0, 0]")
    ns = nb.ns
    assert {device_marks.tensor_mark(p) for p in ns["model"].parameters()} == {"cuda"}
    assert device_marks.tensor_mark(ns["x"]) == "cuda"
    assert device_marks.tensor_mark(ns["y"]) == ""
    assert device_marks.tensor_mark(ns["other"].weight) == ""
    nb.ok("z = model(x)")  # no GPU there: the marks come back
    assert device_marks.tensor_mark(ns["x"]) == "cuda"
    nb.cell("model.cpu()\nx = x.to('cpu')")
    nb.collect("model(x)")
    assert {device_marks.tensor_mark(p) for p in ns["model"].parameters()} == {""}


def test_marks_travel_through_copies_and_cells(nb: Notebook) -> None:
    nb.cell("import torch\nmodel = torch.nn.Linear(2, 2)")
    for parameter in nb.ns["model"].parameters():
        device_marks.mark_tensor(parameter, "cuda:0")
    nb.cell("state = model.state_dict()\nbare = torch.ones(1)")
    nb.ok("model.bias.data[0] = 1\nmore = bare + 1")
    ns = nb.ns
    assert {device_marks.tensor_mark(t) for t in ns["model"].parameters()} == {"cuda:0"}
    assert device_marks.tensor_mark(ns["state"]["bias"]) == "cuda:0"
    assert device_marks.tensor_mark(ns["more"]) == ""


# ------------------------------------------------------------------------------------- random states
def test_random_states_travel_in_and_back(nb: Notebook) -> None:
    seed = "import random, numpy as np, torch\nrandom.seed(1); np.random.seed(1); torch.manual_seed(1)"
    draw = "r = random.random(), np.random.rand(), torch.rand(1).item()"
    nb.cell(seed)
    nb.ok(draw)
    first = nb.ns["r"]
    nb.ok(draw)
    second = nb.ns["r"]
    nb.cell(draw)
    third = nb.ns["r"]
    nb.cell(seed)
    expected = []
    for _ in range(3):
        nb.cell(draw)
        expected.append(nb.ns["r"])
    assert [first, second, third] == expected
    assert len({first, second, third}) == 3


def test_settings_travel_in_and_back(nb: Notebook) -> None:
    nb.cell(
        "import numpy as np, pandas as pd, torch\nold = np.get_printoptions()\nnp.set_printoptions(precision=3)\n"
        "pd.set_option('display.max_rows', 7)\ntorch.set_default_dtype(torch.float64)"
    )
    try:
        nb.ok(
            "r = np.get_printoptions()['precision'], pd.get_option('display.max_rows'), str(torch.zeros(1).dtype)\nnp.set_printoptions(precision=5)"
        )
        assert nb.ns["r"] == (3, 7, "torch.float64")
        assert np.get_printoptions()["precision"] == 5
    finally:
        nb.cell(
            "torch.set_default_dtype(torch.float32)\npd.reset_option('display.max_rows')\nnp.set_printoptions(**old)"
        )


def test_the_number_of_torchs_threads_travels_in_and_back(nb: Notebook) -> None:
    usual = torch.get_num_threads()
    try:
        nb.ok("import torch\ntorch.set_num_threads(5)")
        assert torch.get_num_threads() == 5
        nb.ok("r = torch.get_num_threads()")
        assert nb.ns["r"] == 5
        nb.cell("torch.set_num_threads(3)")
        trip = nb.ok("r = torch.get_num_threads()\nw = torch.ones(2, requires_grad=True) * 2\n(w, w)")
        assert nb.ns["r"] == 3
        assert "Warning" not in trip.output  # looking for `w.grad` warned
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(usual)
