# ruff: noqa: E501 - a cell is one string
"""The semantics once more through everything: real kernel, real gateway, real rank."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.protocol.config import DEFAULT_HASH_SEED

pytestmark = pytest.mark.thorough

if TYPE_CHECKING:
    from kernel_outputs import Kernel

MakeKernel = Callable[[dict[str, str]], "Kernel"]


@pytest.fixture
def kernel(make_kernel: MakeKernel, home: dict[str, str], cluster: Ready) -> Kernel:
    made = make_kernel({**home, "JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)})
    made.run("%load_ext jupyter_gpu_release")
    return made


def gpu(kernel: Kernel, body: str, line: str = "") -> Kernel:
    cell = kernel.run(f"%%gpu_train {line}\n{body}", 60)
    assert cell.reply["status"] == "ok", cell.traceback
    return cell


def test_a_notebook_goes_on_over_gpu_cells(kernel: Kernel):
    kernel.run(
        "import random, numpy as np, torch\nfrom torch import nn\ntorch.manual_seed(3)\ncounter, history = 0, []\nh2 = history\n"
        "def bump():\n    global counter\n    counter += 1\nclass Net(nn.Module):\n    steps = 0\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(2, 1)\n"
        "    def forward(self, x):\n        bump()\n        Net.steps += 1\n        return self.layer(x)\n"
        "first, net = Net, Net()\nopt = torch.optim.Adam(net.parameters())\nhf_token = 'abc'\n"
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        60,
    )
    step = (
        "opt.zero_grad(); loss = net(torch.ones(4, 2)).sum(); loss.backward(); opt.step(); history.append(loss.item())"
    )
    for _ in range(2):
        gpu(kernel, step + "\ndrawn = torch.rand(1).item()\nprint(device)")
        kernel.run(step + "\nlocal = torch.rand(1).item()")
    facts = "(counter, len(h2), Net is first, type(net) is Net, Net.steps, opt.param_groups[0]['params'][0] is net.layer.weight)"
    assert kernel.value(facts) == "(4, 4, True, True, 4, True)"
    assert (
        kernel.value("(net.layer.weight.grad is not None, loss.requires_grad, drawn != local)") == "(True, True, True)"
    )


def test_hashes_of_texts_are_those_of_the_clusters_seed(kernel: Kernel):
    cell = gpu(kernel, "found = hash('text')")
    environment = {**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED") or DEFAULT_HASH_SEED}
    same = subprocess.run(
        [sys.executable, "-c", "print(hash('text'))"], env=environment, capture_output=True, text=True
    )
    assert kernel.value("found") == same.stdout.strip()
    text = "hash() is not what it is in this kernel, which has other hashes: PYTHONHASHSEED="
    assert text in "".join(str(message["content"]) for message in cell)
    assert "other hashes" not in str(list(gpu(kernel, "total = sum({1, 2})")))


def test_local_modules_and_figures(kernel: Kernel):
    kernel.run("%%writefile beside.py\nVALUE = 1")
    kernel.run("import beside")
    gpu(kernel, "r = beside.VALUE")
    assert kernel.value("r") == "1"
    kernel.run("%%writefile beside.py\nVALUE = 20")  # Python tells versions apart by size and second
    gpu(kernel, "r = beside.VALUE")
    assert kernel.value("r") == "20"
    kernel.run("import matplotlib.pyplot as plt\nplt.rcParams['figure.figsize'] = [2, 1]", 60)
    cell = gpu(kernel, "fig, ax = plt.subplots()\nsize = fig.get_size_inches().tolist()")
    assert kernel.value("size") == "[2.0, 1.0]"
    assert _pictures(cell)
    assert kernel.value("plt.get_fignums()") == "[]"
    kernel.run("plt.plot([1, 2])", 60)
    assert _pictures(gpu(kernel, "plt.plot([1, 2])"))
    kernel.run("plt.ioff()", 60)
    assert not _pictures(gpu(kernel, "quiet, ax = plt.subplots()"))
    assert _pictures(gpu(kernel, "plt.ion()\nplt.plot([1, 2])"))
    assert kernel.value("plt.isinteractive()") == "True"


def _pictures(cell: Any) -> list[Any]:
    return [m for m in cell if m["msg_type"] == "display_data" and "image/png" in m["content"]["data"]]


@pytest.mark.parametrize("registers", ["plain", "GPU"])
def test_how_objects_are_shown_is_the_same_in_both(kernel: Kernel, registers: str):
    """Formatters are the shell's; what is registered for a class of Python's goes along as well."""
    run = kernel.run if registers == "plain" else lambda body: gpu(kernel, body)
    run(
        "class Shown:\n    pass\nmark = 'b'\nof = get_ipython().display_formatter.formatters\n"
        "of['text/html'].for_type(Shown, lambda _: f'<{mark}>')\nof['text/latex'].for_type(int, lambda n: f'${n}$')\ndel of"
    )
    for show in (kernel.run, lambda body: gpu(kernel, body)):
        assert _shown(show("Shown()"), "text/html") == ["<b>"]
        assert _shown(show("7"), "text/latex") == ["$7$"]
    assert "is not so in the cell" not in str(list(gpu(kernel, "1")))
    kernel.run(
        "import threading\nclass Held:\n    pass\nof = get_ipython().display_formatter.formatters\n"
        "of['text/html'].for_type(Held, lambda _, lock=threading.Lock(): str(lock))\ndel of"
    )
    assert "formatter text/html of Held was set in the notebook" in str(gpu(kernel, "1").plain())
    assert _shown(gpu(kernel, "Shown()"), "text/html") == ["<b>"]


def _shown(cell: Any, kind: str) -> list[str]:
    """Of the cell's own displays; status lines and receipts are displays of ours."""
    contents = [m["content"] for m in cell if m["msg_type"] in ("display_data", "execute_result")]
    return [
        each["data"][kind] for each in contents if kind in each["data"] and "jgr-" not in str(each.get("transient"))
    ]
