# ruff: noqa: E501 - a cell is one string
"""Tensors, arrays and devices, there and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from optional_libraries import torch
from round_trip import Notebook

from jupyter_gpu_release.store.blobs import BlobStore

TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 2)
    def forward(self, x): return self.head(self.body(x))
model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.StepLR(opt, 1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(2, (32,))), 8)
history = []
ema = model.head
"""
EPOCH = """
for x, y in loader:
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    history.append(loss.item())
sched.step()
"""


@pytest.mark.parametrize("through_files", [False, True])
def test_training_goes_on_over_several_cells(nb: Notebook, through_files: bool) -> None:
    nb.cell(TRAINING)
    before = nb.ns["model"].head.weight.detach().clone()
    trip = nb.ok(EPOCH, through_files=through_files)
    ns = nb.ns
    assert len(ns["history"]) == 4
    assert ns["opt"].param_groups[0]["params"][0] is next(ns["model"].parameters())
    assert ns["opt"].state[ns["model"].head.weight]["step"] == 4
    assert ns["sched"].optimizer is ns["opt"]
    assert ns["ema"] is ns["model"].head
    assert ns["model"].head.weight.grad is not None
    assert not torch.equal(ns["model"].head.weight, before)
    assert isinstance(ns["model"], ns["Net"])
    assert not ns["loss"].requires_grad
    assert any("`loss` came back detached" in note for note in trip.notes)
    assert "loader" not in trip.results
    nb.cell(EPOCH)
    nb.ok(EPOCH, through_files=through_files)
    assert len(ns["history"]) == 12
    assert ns["opt"].state[ns["model"].head.weight]["step"] == 12


def test_the_same_numbers_as_without_a_cluster(nb: Notebook) -> None:
    # a bias before a batch norm has no gradient but noise, which differs with the number of threads
    training = TRAINING.replace("nn.BatchNorm1d(8)", "nn.Tanh()")
    nb.cell(training)
    nb.ok(EPOCH)
    nb.ok("model.eval()\nlast = model(torch.ones(1, 4)).detach()")
    there = nb.ns["last"], nb.ns["history"]
    nb.cell(training)
    nb.cell(EPOCH)
    nb.cell("model.eval()\nlast = model(torch.ones(1, 4)).detach()")
    assert torch.allclose(nb.ns["last"], there[0], atol=1e-5)
    assert nb.ns["history"] == pytest.approx(there[1], abs=1e-5)


def test_an_optimiser_that_stayed_at_home_follows_its_model(nb: Notebook) -> None:
    nb.cell(TRAINING)
    nb.ok("with torch.no_grad():\n    for p in model.parameters():\n        p.fill_(0.1)")
    ns = nb.ns
    assert ns["opt"].param_groups[0]["params"][0] is next(ns["model"].parameters())
    nb.cell(EPOCH)
    assert not torch.allclose(ns["model"].head.weight, torch.tensor(0.1))


def test_a_result_in_a_graph_comes_back_without_it_and_says_so(nb: Notebook) -> None:
    nb.cell("import torch\nw = torch.ones(2, requires_grad=True)")
    trip = nb.ok("loss = (w * 2).sum()\nplain = w.detach() * 3")
    assert "`loss` came back detached from its computation graph" in trip.notes
    assert not [note for note in trip.notes if "plain" in note]
    assert (float(nb.ns["loss"]), nb.ns["loss"].grad_fn) == (4.0, None)


def test_views_stay_views(nb: Notebook) -> None:
    nb.cell(
        "import numpy as np, torch\nbase = torch.arange(10.)\nrow = base[2:4]\ngrid = base.view(2, 5).t()\n"
        "arr = np.arange(12.).reshape(3, 4)\npart = arr[1:, ::2]\nback = arr[::-1]\nwhen = np.arange('2020', '2024', dtype='M8[Y]')\n"
        "late = when[2:]\nd = {'a': base, 'b': row}"
    )
    nb.ok(
        "base[2] = 100\narr[2, 2] = 50\nwhen[3] = np.datetime64('2000')\nlate\nok = (row[0].item(), grid[2, 0].item(), part[1, 1], back[0, 2])"
    )
    ns = nb.ns
    assert ns["ok"] == (100.0, 100.0, 50.0, 50.0)
    assert ns["late"][1] == np.datetime64("2000")
    ns["base"][3] = -1
    ns["arr"][1, 0] = -2
    assert (ns["row"][1], ns["grid"][3, 0], ns["part"][0, 0], ns["back"][1, 0]) == (-1, -1, -2, -2)
    assert ns["d"]["a"] is ns["base"]
    assert ns["d"]["b"] is ns["row"]


def test_a_small_view_does_not_take_its_base_along(nb: Notebook) -> None:
    nb.cell(
        "import torch, numpy as np\ndata = torch.zeros(1000, 1000)\nbatch = data[:10]\nnp_batch = np.zeros((1000, 1000))[:10]"
    )
    trip = nb.ok("first = batch + np_batch[0, 0]\nx = data[5:6]")
    assert trip.results["x"].bytes < 10_000
    prepared = nb.collect("batch.sum() + np_batch.sum()")
    assert prepared.total_bytes < 200_000


@pytest.mark.filterwarnings("ignore")
def test_kinds_of_tensors(nb: Notebook) -> None:
    nb.cell(
        "import torch\nts = {\n 'bf16': torch.ones(3, dtype=torch.bfloat16), 'bool': torch.tensor([True]), 'empty': torch.empty(0, 3),\n"
        " 'scalar': torch.tensor(5), 'complex': torch.ones(2, dtype=torch.complex64).conj(), 'expand': torch.ones(1).expand(4),\n"
        " 'sparse': torch.eye(3).to_sparse(), 'csr': torch.eye(3).to_sparse_csr(), 'param': torch.nn.Parameter(torch.ones(2)),\n"
        " 'frozen': torch.nn.Parameter(torch.ones(2), requires_grad=False), 'int8': torch.ones(2, dtype=torch.int8),\n"
        " 'quant': torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), 'nested': [torch.ones(1, requires_grad=True)],\n"
        " 'fp8': torch.ones(4).to(torch.float8_e4m3fn), 'meta': torch.empty(2, device='meta'), 'buffer': torch.nn.Buffer(torch.ones(1)),\n"
        " 'chan': torch.ones(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)}\n"
        "gen = torch.Generator().manual_seed(7)\nexpected = torch.rand(2, generator=torch.Generator().manual_seed(7))\nscript = torch.jit.script(torch.nn.Linear(2, 2))\n"
        "ts['param'].note = 'mine'"
    )
    nb.ok(
        "back = dict(ts)\nback['more'] = 1\nrolled = torch.rand(2, generator=gen)\nsame_script = script(torch.ones(1, 2)).shape\nback['script'] = script"
    )
    back, ts = nb.ns["back"], nb.ns["ts"]
    for name, tensor in ts.items():
        if name in ("nested", "meta"):
            continue
        got = back[name]
        assert type(got) is type(tensor)
        assert (got.dtype, got.shape, got.layout, got.requires_grad) == (
            tensor.dtype,
            tensor.shape,
            tensor.layout,
            tensor.requires_grad,
        ), name
        dense = [
            t.dequantize() if t.is_quantized else t.to_dense() if t.layout is not torch.strided else t
            for t in (got, tensor)
        ]
        assert torch.equal(
            dense[0].float() if name == "fp8" else dense[0], dense[1].float() if name == "fp8" else dense[1]
        ), name
    assert back["param"].note == "mine"
    assert back["nested"][0].requires_grad
    assert back["meta"].device.type == "meta"
    assert back["chan"].stride() == ts["chan"].stride()
    assert torch.equal(nb.ns["rolled"], nb.ns["expected"])
    assert nb.ns["back"]["script"](torch.ones(1, 2)).shape == (1, 2)


def test_a_model_that_each_gang_wraps_again_stays_one_model(nb: Notebook) -> None:
    """It leaves as a module, is wrapped in the cell, comes back as a module; what held it here holds the new one."""
    nb.cell(
        "import torch\nnet = torch.nn.Linear(2, 1)\nmodel = net\nopt = torch.optim.Adam(net.parameters())\nkept = [net]"
    )
    gang = (
        "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "model = DistributedDataParallel(model)\nmodel(torch.ones(1, 2)).sum().backward()\nopt.step()"
    )
    for steps in (1, 2):
        trip = nb.ok(gang)
        ns = nb.ns
        assert type(ns["model"]) is torch.nn.Linear
        assert ns["model"] is ns["net"] is ns["kept"][0]
        assert ns["opt"].param_groups[0]["params"][0] is ns["net"].weight
        assert ns["opt"].state[ns["net"].weight]["step"] == steps
        assert [note for note in trip.notes if "Distributed" in note] == [
            "`model` came back without DistributedDataParallel around its module (wrap it again in the next gang)"
        ]


def test_large_values_are_mapped_and_stay_writable(nb: Notebook) -> None:
    nb.cell("import torch, numpy as np\nbig = torch.zeros(1 << 20)\nright = np.zeros(1 << 18)")
    trip = nb.ok("made = big + 1\nhuge = np.ones(1 << 20)\nright[5] = 1", through_files=True)
    assert "big" not in trip.results
    ns = nb.ns
    assert ns["right"][5] == 1
    ns["made"][0] = 9
    ns["huge"][0] = 8
    trip = nb.ok("r = float(made.sum()) + float(huge.sum())", through_files=True)
    assert ns["r"] == 2 * (1 << 20) + 8 + 7
    assert list(trip.results) == ["r"]


def test_a_large_unchanged_input_is_not_returned_and_one_byte_is_noticed(nb: Notebook) -> None:
    nb.cell("import torch\nbig = torch.zeros(1 << 22)\nview = big[:100]\nsame = torch.ones(1 << 22)")
    trip = nb.ok("x = float(same.sum() + view.sum())\nbig[4_000_000] = 1", through_files=True)
    assert set(trip.results) == {"x", "big"}
    trip = nb.ok("big[7] = big[7]\nn = 1", through_files=True)  # written, but equal
    assert set(trip.results) == {"n"}


def test_a_result_goes_into_the_next_cell_without_being_written_again(nb: Notebook, tmp_path: Path) -> None:
    nb.cell("import torch, numpy as np")
    nb.ok("made = torch.ones(1 << 20)\narr = np.ones((1 << 10, 1 << 10))", through_files=True)
    before = _blobs(tmp_path)
    assert sum(before.values()) == 12 << 20
    trip = nb.ok("r = float(made.sum() + arr.sum())\nagain = arr", through_files=True)
    assert nb.ns["r"] == 2 << 20
    assert trip.prepared.total_bytes > 12 << 20
    assert (tmp_path / "inputs-2.graph").stat().st_size < 20_000
    assert _blobs(tmp_path) == before  # and `again` is the input, not a copy of it
    nb.ns["made"][0] = 5
    nb.ok("first = float(made[0])", through_files=True)
    assert nb.ns["first"] == 5
    assert sum(_blobs(tmp_path).values()) == 16 << 20


def _blobs(folder: Path) -> dict[str, int]:
    return {info.digest: info.bytes for info in BlobStore(folder / "blobs").list_blobs()}


def test_pandas_and_sklearn(nb: Notebook) -> None:
    nb.cell(
        "import pandas as pd, numpy as np\nfrom sklearn.linear_model import LogisticRegression\n"
        "df = pd.DataFrame({'x': np.arange(20.), 'c': pd.Categorical(list('ab') * 10), 's': ['t'] * 20, 'd': pd.date_range('2020', periods=20)})\n"
        "clf = LogisticRegression()\nlimit = 5"
    )
    trip = nb.ok("clf.fit(df[['x']], df['x'] > 10)\nsmall = df.query('x > @limit')\ndf.loc[0, 'x'] = 99")
    assert nb.ns["clf"].predict(nb.ns["df"][["x"]].iloc[-1:]).item()
    assert len(nb.ns["small"]) == 14
    assert nb.ns["df"].loc[0, "x"] == 99
    assert set(trip.results) == {"clf", "small", "df"}


_OPERATOR = """
import torch
def _remember(ctx, inputs, output): ctx.scale = inputs[1]
def _back(ctx, grad): return grad * ctx.scale, None
@torch.library.custom_op('notebook::scaled', mutates_args=())
def scaled(x: torch.Tensor, scale: float) -> torch.Tensor: return x * scale + shift
@scaled.register_fake
def _(x, scale): return torch.empty_like(x)
scaled.register_autograd(_back, setup_context=_remember)
"""
_USE_OPERATOR = """
w = torch.ones(2, requires_grad=True)
torch.ops.notebook.scaled(scaled(w, 3.0), 2.0).sum().backward()
faked = tuple(torch.ops.notebook.scaled(torch.empty(5, device='meta'), 1.0).shape)
seen = w.grad.tolist(), scaled(torch.zeros(1), 1.0).item(), faked
"""


def test_an_operator_of_the_notebook_works_in_a_cell_and_one_of_a_cell_in_the_notebook(nb: Notebook) -> None:
    nb.cell(f"shift = 1.0\n{_OPERATOR}")
    before = nb.ns["scaled"]
    trip = nb.ok(f"{_USE_OPERATOR}\nsame = [scaled]")
    assert nb.ns["seen"] == ([6.0, 6.0], 1.0, (5,))
    assert nb.ns["scaled"] is before
    assert nb.ns["same"][0] is before
    assert trip.notes == []
    nb.cell("shift = 2.0")
    nb.ok(_OPERATOR.replace("notebook::", "cell::"))
    nb.cell(_USE_OPERATOR.replace("notebook.", "cell."))
    assert nb.ns["seen"] == ([6.0, 6.0], 2.0, (5,))
    nb.ok("@scaled.register_kernel('cpu')\ndef _(x, scale): return x * 0 + 7")
    assert (
        nb.cell("scaled(torch.zeros(1), 1.0).item()")
        == nb.cell("torch.ops.cell.scaled(torch.zeros(1), 1.0).item()")
        == 7
    )


def test_an_operator_is_found_by_its_registered_name_alone(nb: Notebook) -> None:
    nb.cell(
        f"shift = 1.0\n{_OPERATOR.replace('notebook::', 'nameless::')}\n_ = kept = None\nhold = [scaled]; del scaled"
    )
    nb.cell("packet = torch.ops.nameless.scaled; add = [torch.ops.aten.add.Tensor]\ndef use(x): return packet(x, 2.0)")
    trip = nb.ok("seen = torch.ops.nameless.scaled(torch.ones(1), 3.0).item(), use(torch.ones(1)).item()")
    assert nb.ns["seen"] == (4.0, 3.0)
    nb.ok("same = [packet, add[0], torch.ops.nameless.scaled.default]")
    assert nb.cell("[same[0] is packet, same[1] is add[0], same[2] is packet.default]") == [True] * 3
    assert trip.notes == []
    nb.ok(f"{_OPERATOR.replace('notebook::', 'unnamed::')}\ndel scaled")
    assert nb.cell("torch.ops.unnamed.scaled(torch.ones(1), 3.0).item()") == 4.0


def test_a_tensor_of_another_shape_that_parts_from_its_views_says_so(nb: Notebook) -> None:
    note = "a tensor of shape (6,) has memory of its own now; what else looked at the old one still does"
    nb.cell("import torch\nt = torch.arange(4.); v = t[:2]; alone = torch.ones(2)")
    assert nb.ok("alone.resize_(5); t.mul_(2)").notes == []
    assert nb.cell("t[0] = 7; v[0].item()") == 7
    assert nb.ok("t.resize_(6)").notes == [note]
    assert nb.cell("t.shape[0], v.tolist()") == (6, [7, 2])
