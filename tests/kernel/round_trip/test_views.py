"""Views of numpy arrays and torch tensors stay views of what travels with them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from optional_libraries import torch
from round_trip import Notebook

from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust


@pytest.mark.parametrize("through_files", [False, True])
def test_a_split_of_an_array_stays_a_split(nb: Notebook, through_files: bool) -> None:
    nb.cell("import numpy as np\nE = np.zeros((2000, 2000))\ntr = E[:1600]\nte = E[1600:]")
    for _ in range(2):  # the second time the array is one that came home
        nb.ok(
            "E /= 2\nE += 1\nshared = np.shares_memory(E, te), np.shares_memory(E, tr)\nseen = te[0, 0], tr[0, 0]",
            through_files=through_files,
        )
        ns = nb.ns
        assert ns["shared"] == (True, True)
        assert np.shares_memory(ns["E"], ns["te"])
        assert np.shares_memory(ns["E"], ns["tr"])
        assert ns["seen"] == (ns["E"][0, 0],) * 2
    assert ns["te"][3, 3] == 1.5
    ns["E"][1600, 0] = 9
    assert ns["te"][0, 0] == 9


def test_views_that_the_cell_makes_come_home_as_views(nb: Notebook) -> None:
    nb.ok("import numpy as np\nGv = None\nG = np.zeros((1000, 1000))\nGv = G[:10]\nbox = [G[5:7]]")
    ns = nb.ns
    ns["G"][5] = 3
    assert (ns["Gv"][5, 0], ns["box"][0][0, 0]) == (3, 3)


@pytest.mark.parametrize(
    "make", ["E = np.zeros((1000, 1000))", "E = torch.zeros(1000, 1000)", "E = np.zeros((1000, 1000), order='F')"]
)
def test_a_view_in_a_container_may_come_before_what_it_looks_at(nb: Notebook, make: str) -> None:
    nb.cell(f"import numpy as np, torch\n{make}\na = {{'view': E[:3], 'deep': [E[5:7]]}}\nb = ['x', E]\ndel E")
    nb.ok("b[1][2] = 7\nb[1][6] = 8\nseen = float(a['view'][2, 0]), float(a['deep'][0][1, 0])")
    ns = nb.ns
    assert ns["seen"] == (7, 8)
    ns["b"][1][0] = 9
    assert (float(ns["a"]["view"][0, 0]), float(ns["a"]["deep"][0][1, 1])) == (9, 8)


def test_a_view_and_its_array_in_one_container(nb: Notebook) -> None:
    nb.ok("import numpy as np\nE = np.zeros((1000, 1000))\nd = {'first': E[:2], 'all': E}\nE = None")
    nb.ns["d"]["all"][1] = 4
    assert nb.ns["d"]["first"][1, 1] == 4
    assert nb.collect("d").total_bytes < 8_100_000


def test_a_view_whose_array_stays_behind_takes_only_itself(nb: Notebook) -> None:
    nb.cell("import numpy as np\nE = np.zeros((1000, 1000))\nparts = [E[:2], E[4:6]]\ndel E")
    assert nb.collect("parts").total_bytes < 100_000


def test_an_array_over_a_tensors_memory_stays_there_although_the_cell_changes_the_tensor(nb: Notebook) -> None:
    nb.gpu("import torch\nt = torch.arange(6.0)\nfirst = t.numpy()")
    nb.cell("first[1] = 7.0\nassert t[1] == 7")
    nb.gpu("array = t.numpy()\nrow = t.view(2, 3).numpy()[1]\narray[0] = -1")
    nb.cell("row[2] = 9.0")
    for name in ("t", "array", "first"):
        assert nb.ns[name].tolist() == [-1.0, 7.0, 2.0, 3.0, 4.0, 9.0], name
    nb.gpu("first[3] = 5.0")
    nb.cell("assert t[3] == array[3] == row[0] == 5, (t, array, row)")
    nb.gpu("import numpy as np\nn = np.arange(3.0)\nu = torch.from_numpy(n)\nu[0] = 4")
    nb.cell("n[1] = 8.0\nassert u.tolist() == [4.0, 8.0, 2.0], u")


@pytest.mark.parametrize("has_bad", [True, False])
def test_a_name_that_cannot_be_sent_tears_no_memory_of_others(has_bad: bool) -> None:
    t, n, own, base = torch.arange(10.0), np.arange(4.0), torch.arange(3.0), np.zeros((1000, 100))
    bad = {"bad": [own, t.view(5, 2), base, threading.Lock()]} if has_bad else {}
    rest = {
        "z": t.view(2, 5),
        "before": base[3:5],
        **bad,
        "z2": t[2:],
        "tn": torch.from_numpy(n),
        "own": own,
        "again": own.view(3, 1),
        "small": base[5:7],
    }
    dump = codec.dump({"t": t, "n": n}, NamespaceInfo({}, at_home=True), rest=lambda: rest, rest_bytes=1 << 20)
    assert set(dump.failed) == set(bad)
    assert dump.total_bytes < 10_000  # `base` stays here
    buffers = [bytearray(buffer) for buffer in dump.buffers]
    back = codec.load(dump.stream, buffers, NamespaceInfo({}, at_home=False), trust=Trust.OWN).values
    back["t"][3], back["n"][1], back["own"][2] = 30, 40, 50
    assert (float(back["z"][0, 3]), float(back["z2"][1])) == (30, 30)
    assert (float(back["tn"][1]), float(back["again"][2, 0])) == (40, 50)
    assert back["before"].tolist() == back["small"].tolist() == base[:2].tolist()


def test_a_traced_module_and_its_model_share_their_parameters(nb: Notebook) -> None:
    nb.cell("import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1)).eval()")
    nb.ok("traced = torch.jit.trace(model, torch.ones(3, 2))")
    asked = "with torch.no_grad(): model[0].weight.fill_(4); model[0].bias.zero_(); model[1].running_mean.fill_(1)\n"
    nb.cell(asked)
    assert nb.cell("torch.equal(traced(torch.ones(3, 2)), model(torch.ones(3, 2)))")
    nb.ok(asked.replace("4", "5") + "same = torch.equal(traced(torch.ones(3, 2)), model(torch.ones(3, 2)))")
    assert nb.ns["same"]
    assert nb.cell("traced(torch.ones(1, 2)).round().item(), traced.state_dict()['0.weight'][0, 0].item()") == (9, 5)


def test_a_module_traced_by_the_cell_that_changes_its_model_shares_its_parameters(nb: Notebook) -> None:
    nb.cell("import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))")
    nb.ok("traced = [torch.jit.trace(model.eval(), torch.ones(3, 2))]")
    change = "with torch.no_grad(): model[0].weight.fill_(4); model[1].running_mean.fill_(1)\n"
    nb.cell(change)
    assert nb.cell("torch.equal(traced[0](torch.ones(3, 2)), model(torch.ones(3, 2)))")
    nb.ok(change.replace("4", "6") + "same = torch.equal(traced[0](torch.ones(3, 2)), model(torch.ones(3, 2)))")
    assert nb.ns["same"]
    assert nb.cell("traced[0].state_dict()['0.weight'][0, 0].item()") == 6


def test_a_sliding_window_looks_at_its_array_and_read_only_arrays_stay_so(nb: Notebook) -> None:
    nb.cell("import numpy as np")
    nb.ok(
        "a = np.arange(6.)\nwindow = np.lib.stride_tricks.sliding_window_view(a, 3)\n"
        "grid = np.arange(90000.).reshape(300, 300)\nlarge, part = grid[:3, :3].copy(), grid[:3, :3]\ndel grid\n"
        "part.flags.writeable = False\nwide = np.broadcast_to(large[:, :1], (3, 4))"
    )
    assert nb.cell("[x.flags.writeable for x in (window, part, wide)], window.shape") == ([False] * 3, (4, 3))
    assert nb.cell("a[2] = 7; window[0, 2], part[2, 2]") == (7, 602)
    assert nb.cell("large[0, 0] = -1; wide[0]").tolist() == [-1] * 4
