"""Functions launched from notebooks, and CPU stages in front of GPU cells, in real kernels on a real cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kernel_bed import Notebook

from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.rest import GatewayClient

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory, _use_the_sessions_cluster: None) -> Iterator[Notebook]:
    """One kernel for all of them: none leaves anything behind that another would see."""
    made = Notebook(tmp_path_factory.mktemp("notebook"))
    yield made
    made.close()


_FUNCTIONS = """
import asyncio, threading
import jupyter_gpu_release as gpu_release
import torch
from jupyter_gpu_release import gpu, launch

device = "cuda" if torch.cuda.is_available() else "cpu"
calls = 0

class Model:
    def __init__(self, width):
        self.width = width

def train(width, *, scale=1):
    print("training", width)
    return Model(width * scale)

def fails(width):
    model = Model(width)
    raise KeyError(model.width)

class Own(Exception):
    pass

def fails_often():
    raise ExceptionGroup("many", [Own("first"), SyntaxError("second")])

@gpu(gpus=2)
def pair(x):
    import os
    return x, len(os.environ["JUPYTER_GPU_IDS"].split(","))
"""

_STAGE = """
import time
from pathlib import Path
import jupyter_gpu_release as gpu_release
stays = Path("stay").resolve()

def wait():
    while not stays.exists():
        time.sleep(0.02)

stage = gpu_release.launch(wait, gpus=0, cpus=1)
"""

#: memory of its own, without mapped files
_RSS = "sum(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith(('RssAnon', 'RssShmem')))"


def test_functions_are_the_notebooks_own(notebook: Notebook):
    notebook.ok(_FUNCTIONS)
    shown = notebook.ok("runs = [launch(train, n, scale=2) for n in range(1, 4)]\nmodels = await asyncio.gather(*runs)")
    assert shown.text() == ""  # what functions print is not mixed into the cell
    assert notebook.value("[model.width for model in models]") == [2, 4, 6]
    assert notebook.value("all(type(model) is Model for model in models)")
    assert notebook.value("runs[1].logs()") == "training 2\n"
    assert "training 5\n" in notebook.ok("launch(train, 5, stream=True).result()").text()
    failed = notebook.run("launch(fails, 7).result()")
    assert failed.status == "error"
    assert failed.reply["ename"] == "KeyError"
    assert "fails" in failed.traceback
    assert "__gpu_function__" not in failed.traceback
    assert "launched.py" not in failed.traceback
    caught = "try:\n    launch(fails_often).result()\nexcept* Own as own:\n    print(own.exceptions[0].args)\n"
    assert notebook.ok(f"{caught}except* SyntaxError as bad:\n    print(bad.exceptions[0].msg)").text() == (
        "('first',)\nsecond\n"
    )
    assert "fails_often()" in notebook.run("%%gpu_train\nfails_often()").traceback  # IPython prints a group elsewhere
    wrong = notebook.run("pair(3, gpus=1)")
    assert "launch(pair, …, gpus=1)" in wrong.traceback
    assert ".py" not in wrong.traceback
    assert notebook.value("pair(3)") == [3, 2]
    notebook.ok("%%gpu_train --gpus 1\ninside = pair(4)")
    assert notebook.value("inside") == [4, 1]  # a call in the cell, with the cell's own GPU
    assert notebook.value("[t.name for t in threading.enumerate() if 'gpu-' in t.name]") == ["gpu-session"]
    notebook.ok("import nest_asyncio\nnest_asyncio.apply()")  # it changes loops that run already
    assert notebook.value("pair(3)") == [3, 2]
    waits = notebook.begin("import time\nlong = launch(time.sleep, 600)\nprint('waits')\nlong.result()")
    notebook.until(lambda shown: "waits" in shown.text())
    notebook.interrupt()
    assert notebook.end(waits).reply["ename"] == "KeyboardInterrupt"
    assert notebook.value("[long.done(), long.cancel()]") == [False, True]
    assert "RunCancelledError" in notebook.run("long.result()").traceback


def test_items_are_mapped_to_the_notebooks_own_class(notebook: Notebook):
    notebook.ok(_FUNCTIONS)
    code = (
        "mapped = gpu_release.launch_map(train, [1, 2, 3], scale=2, processes=2)\nmodels = await mapped\nprint(mapped)"
    )
    shown = notebook.ok(code)
    assert "<map of train: 3 of 3 done>" in shown.text()
    assert "training" not in shown.text()
    assert notebook.value("[[type(model) is Model, model.width] for model in models]") == [[True, n] for n in (2, 4, 6)]
    failed = notebook.run("gpu_release.launch_map(fails, [7, 8], processes=1).results()")
    assert failed.reply["ename"] == "KeyError"
    assert "KeyError(model.width)" in failed.traceback
    assert "map_worker" not in failed.traceback


def test_defaults_and_what_cannot_be_sent(notebook: Notebook):
    notebook.ok(_FUNCTIONS + "lock = threading.Lock()\ndef locks(): return lock")
    assert "cannot send `lock`: cannot pickle '_thread.lock' object" in notebook.run("launch(locks)").traceback
    notebook.ok("%gpu_config gpus=2")
    assert notebook.value("launch(train, 1).view.gpus") == 2
    assert notebook.value("launch(train, 1, gpus=0).view.gpus") == 0
    notebook.ok("%gpu_config reset")
    asked = notebook.run("%%gpu_train --gpus 0 --cpus 512 --memory 4GiB\n1")
    assert "asks for 512 CPUs on one node; no node of the cluster offers that" in asked.traceback
    asked = notebook.run("%%gpu_train --gpus 0 --memory 900TiB\n1")
    assert "asks for 900 TiB of memory on one node" in asked.traceback


def test_a_cpu_stage_feeds_a_gpu_cell_without_passing_through_the_kernel(notebook: Notebook):
    before = notebook.value(_RSS)
    made = notebook.ok("%%gpu_train --gpus 0 --cpus 1 --memory 2GiB\nimport numpy as np\ntable = np.ones(32 << 20)")
    assert made.receipt.startswith("✓ CPU stage, no GPU taken · ")
    used = notebook.ok("%%gpu_train\ntotal = float(table.sum())\nhalf = table[: 16 << 20] / 2")
    assert "1 simulated GPU" in used.receipt
    grown_kib = notebook.value(_RSS) - before
    assert grown_kib < 50 << 10  # the table alone has 256 MiB
    assert notebook.value("[total, float(half[-1])]") == [float(32 << 20), 0.5]


def test_memory_of_a_cpu_stage_is_enforced_and_it_never_counts_as_gpus(
    notebook: Notebook, until: Callable[[Callable[[], Any], str], None]
):
    notebook.ok(_STAGE)
    until(lambda: notebook.value("stage.status") == "running", "the stage to run")
    target = find_gateway()
    assert target is not None
    with GatewayClient.for_target(target) as gateway:
        until(lambda: gateway.status().gpus.held == 0, "what the tests before launched is over")
        status = gateway.status()
    assert [run.gpus for run in status.runs if run.run == notebook.value("stage.id")] == [0]
    notebook.ok("stays.touch(); stage.result()")
    cell = "import time\ngrown = bytearray(600 << 20)\ntime.sleep(1000)"
    big = notebook.run(f"%%gpu_train --gpus 0 --memory 256MiB\n{cell}")
    assert "its limit is 256 MiB, so it was ended" in big.traceback
