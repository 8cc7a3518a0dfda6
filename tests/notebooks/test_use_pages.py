"""The blocks of the pages for users, as they stand there, in a kernel with a cluster."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import DOCS, Block, block, shell
from kernel_bed import Notebook, Shown

pytestmark = pytest.mark.thorough

#: what the pages leave to the reader
_READERS_OWN = """
import os
import matplotlib.pyplot as plt
import torch

X, y, data, raw, settings = [1, 2], [0, 1], [1.0], [1, 2], [1, 2, 3]
model, optimizer, loader, history, loss = {"weight": 0.0}, None, [1], [], 0.5

def train(*given, epochs=1):
    return {"weight": float(epochs)}

def train_one_epoch(*given):
    return 0.5

def step(model):
    return 0.25

def prepare(raw):
    return raw * 2

def evaluate(setting):
    return setting / 2

def make_loader(path, workers):
    return [path] * workers

def load_model():
    return os.environ["HF_HOME"]

def make_model():
    return torch.nn.Linear(8, 1)
"""
_LACKS = ("of type", "site=lab", "most GPU memory", "GPUs do not tell their memory", "most memory", "most CPUs")
_MODEL = "class Model:\n    def fit(self, *given):\n        self.fitted = True"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory, _use_the_sessions_cluster: None) -> Iterator[Notebook]:
    """One kernel for all of them."""
    made = Notebook(tmp_path_factory.mktemp("work"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _readers_own(notebook: Notebook) -> None:
    notebook.ok("%gpu_config reset\n%reset -f")
    notebook.ok(block("api.md", "# Python").text + _READERS_OWN)


def _lines_of_tables(page: str) -> list[str]:
    """The magics in the first column of a page's tables."""
    return re.findall(r"^\| `(%[^`]+)` \|", (DOCS / "use" / f"{page}.md").read_text(), re.MULTILINE)


def _cell(notebook: Notebook, one: Block, **values: str) -> Shown:
    return notebook.ok(one.filled(values))


def test_the_first_gpu_cell(notebook: Notebook) -> None:
    train = block("start/first-cell.md", "# Run your first GPU cell")
    notebook.ok("X_train, y_train = X, y")
    assert "back: history (list)" in _cell(notebook, train).receipt
    _cell(notebook, block("start/first-cell.md", "## Devices"))
    notebook.ok("%%gpu_train --gpus 1\nthere = device")
    assert notebook.value("[len(history), loss, device, there]") == [40, 0.5, "cpu", "cpu"]  # simulated


def test_three_examples_of_a_cell(notebook: Notebook) -> None:
    notebook.ok(f"{_MODEL}\nmodel, fit = Model(), train")
    for one in (
        block("writing-a-cell.md", "## Three examples", "%%gpu_train\n"),
        block("writing-a-cell.md", "## Three examples", "%%gpu_train --gpus 2"),
        block("writing-a-cell.md", "## Three examples", "%gpu_train"),
    ):
        _cell(notebook, one)
    assert notebook.value("[history, model.fitted]") == [{"weight": 1.0}, True]


def test_a_large_result_is_left_out(notebook: Notebook) -> None:
    left_out = block("operate/no-shared-store.md", "## Three ways out")
    assert "back: mean (float)" in _cell(notebook, left_out).receipt
    assert notebook.value("[mean, 'weights' in globals()]") == [1.0, False]


def test_the_lines_of_the_reference(notebook: Notebook) -> None:
    notebook.ok(
        "class Model:\n    def fit(self, *given):\n        self.fitted = True\nmodel, n, api_key = Model(), 1, 'k'"
    )
    *cells, line = block("reference.md", "## Options of `%%gpu_train`").commands()
    for cell in cells:
        _is_understood(notebook, cell, "model = history = api_key = 1")
    notebook.ok(line)
    assert notebook.value("model.fitted")
    for config in re.findall(r"^\| `(%gpu_config(?: [^`\[]+)?)` \|", (DOCS / "reference.md").read_text(), re.MULTILINE):
        notebook.ok(config)


def test_what_the_pages_on_semantics_show(notebook: Notebook) -> None:
    _cell(notebook, block("semantics/results.md", "# Results of a cell", "history"))
    _cell(notebook, block("semantics/results.md", "# Results of a cell", "%%gpu_train"))
    assert notebook.value("[history, history is h2 is box['h']]") == [[1], True]
    notebook.ok("from torch import nn")
    _cell(notebook, block("semantics/functions.md", "# Functions and classes stay themselves"))
    notebook.ok("mine, kind = bump, Net\n")
    notebook.ok("%%gpu_train\nbump()\nbump()\nnet.seen = True")
    assert notebook.value("[counter, bump is mine, Net is kind, isinstance(net, Net), net.seen]") == [2, *[True] * 4]
    notebook.ok("import threading\ncfg = {'lock': threading.Lock()}")
    refused = re.sub(r"\x1b\[[\d;]*m", "", notebook.run("%%gpu_train\nprint(cfg)").traceback)
    page = block("semantics/held-back.md", "# Names and settings that do not travel").text
    assert page.strip() in refused


def test_tab_in_a_shell(tmp_path: Path) -> None:
    line = block("writing-a-cell.md", "## Tab in a shell").text
    done = shell(f"{line}complete -p jupyter-gpu", tmp_path)
    assert "_python_argcomplete" in done.stdout, done.stderr


def _is_understood(notebook: Notebook, line: str, body: str = "pass") -> None:
    """``--estimate`` asks the cluster; what four simulated GPUs lack is refused by its name."""
    said = " ".join("\n".join(notebook.ok(f"{line} --estimate\n{body}").displays()).split())
    assert "it would start" in said or any(words in said for words in _LACKS), (line, said)


def test_what_a_cell_may_ask_for_is_understood(notebook: Notebook) -> None:
    asked = [line for name in ("gpus", "parts") for line in _lines_of_tables(name)]
    assert len(asked) == 10
    for line in asked:
        _is_understood(notebook, line)


def test_looking_before_sending(notebook: Notebook) -> None:
    said = "\n".join(_cell(notebook, block("use/gpus.md", "## Look before you send")).displays())
    assert "To be sent: " in said
    assert "2 of 4 simulated GPUs wanted" in said


def test_a_stage_without_a_gpu(notebook: Notebook) -> None:
    values = {"--cpus 16": "--cpus 1", "64GiB": "1GiB"}
    receipt = _cell(notebook, block("use/gpus.md", "## CPU stages"), **values).receipt
    assert "CPU stage, no GPU taken" in receipt
    assert notebook.value("features") == [1, 2, 1, 2]


def test_a_gpu_is_kept(notebook: Notebook) -> None:
    for_a_time, auto, release = _lines_of_tables("keep")
    assert "kept for 30 s (until " in notebook.ok(f"{for_a_time}\npass").receipt
    assert "kept" in notebook.ok(f"{auto}\npass").receipt
    notebook.ok(release)
    assert "warm" not in "\n".join(notebook.ok("%gpu_status").displays())


def test_a_queue_is_named(notebook: Notebook) -> None:
    """A cluster without a queues file has one queue, of this name."""
    one = block("use/queues.md", "## With queues of teams")
    assert "queued" in notebook.ok(one.filled({"climate": "default"}) + "pass").receipt


def test_training_in_the_background_and_coming_back(notebook: Notebook) -> None:
    begun = _cell(notebook, block("use/background.md", "# Train in the background"))
    run = re.search(r"2\d{7}-\d{6}-\w{8}", str(begun))
    assert run is not None
    notebook.ok("%gpu_wait")
    assert notebook.value("model") == {"weight": 1.0}
    notebook.ok("del model")
    _cell(notebook, block("use/come-back.md", "# Come back to a run, and load its results"))
    assert notebook.value("model") == {"weight": 1.0}
    load = block("use/come-back.md", "## Results by reference")
    notebook.ok(load.filled({"20261121-034512-9f3a12bc": run[0], "embeddings": "model"}))


def test_values_of_a_run_are_watched(notebook: Notebook) -> None:
    _cell(notebook, block("use/watch.md", "# Watch values while a run trains", "%%gpu_train"))
    notebook.ok("%gpu_wait")
    assert notebook.value("history") == [0.25] * 100
    notebook.ok("%matplotlib inline")
    plot = _cell(notebook, block("use/watch.md", "# Watch values while a run trains", "plt"))
    assert plot.displays("image/png")


def test_cells_that_are_tried_again_or_preempted(notebook: Notebook) -> None:
    _cell(notebook, block("use/node-failures.md", "# Try again when a node dies"))
    assert notebook.value("model") == {"weight": 1.0}
    _cell(notebook, block("use/restartable.md", "# Make a long cell restartable: preempted and resumed"))
    assert notebook.value("history") == [0.5] * 100


def test_a_function_that_is_restartable(notebook: Notebook) -> None:
    _cell(notebook, block("use/checkpoints.md", "# Make functions and scripts restartable"))
    notebook.ok("made = _.result()")
    assert notebook.value("[type(made).__name__, made.in_features]") == ["Linear", 8]


def test_functions(notebook: Notebook) -> None:
    _cell(notebook, block("use/functions.md", "# Run functions on the cluster"))
    assert notebook.value("models") == [{"weight": 30.0}] * 3
    _cell(notebook, block("use/functions.md", "## A decorator"))
    notebook.ok("assert model is None and run.result() is None")
    _cell(notebook, block("use/many-calls.md", "# Make many short calls in a few processes"))
    assert notebook.value("scores") == [0.5, 1.0, 1.5]


def test_a_setup(notebook: Notebook) -> None:
    _cell(notebook, block("use/setup.md", "# Prepare libraries with `%%gpu_setup`"))
    notebook.ok("%%gpu_train\ntext = b'\\xe9'.decode('measured')")
    notebook.ok("%gpu_setup --clear")
    assert notebook.value("text") == "\xe9"


def test_data_variables_and_new_interpreters(notebook: Notebook) -> None:
    _cell(notebook, block("use/data.md", "# Work with 50 to 500 GB of data"))
    assert notebook.value("len(loader)") == 8
    _cell(notebook, block("use/data.md", "## Caches"))
    assert notebook.value("model") == "/data/cache/huggingface"
    notebook.ok("os.environ.update(WANDB_PROJECT='digits', WANDB_API_KEY='k')")
    line = block("use/files.md", "## Environment variables").text
    names = "[os.environ[name] for name in ('OMP_NUM_THREADS', 'WANDB_PROJECT', 'WANDB_API_KEY')]"
    notebook.ok(f"{line}there = {names}")
    assert notebook.value("there") == ["4", "digits", "k"]
    _cell(notebook, block("use/packages.md", "## A package that was just reinstalled"))


def test_gangs(notebook: Notebook) -> None:
    _cell(notebook, block("use/gang-failures.md", "## A rank stays behind"))
    notebook.ok("import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel")
    here = {"--gpus 8 --ranks 8 --nodes 2": "--gpus 2 --ranks 2 --nodes any", "nccl": "gloo", '"cuda"': '"cpu"'}
    _cell(notebook, block("use/gangs.md", "## Several nodes"), **here)
    state = block("use/gangs.md", "## Models").text
    notebook.ok(
        "%%gpu_train --gpus 2 --ranks 2\nfrom torch.distributed.fsdp import fully_shard\n"
        f"dist.init_process_group('gloo')\nmodel = fully_shard(torch.nn.Linear(8, 1))\n{state}"
        "dist.destroy_process_group()"
    )
    assert notebook.value("sorted((name, list(value.shape)) for name, value in state.items())") == [
        ["bias", [1]],
        ["weight", [1, 8]],
    ]


def test_jax_without_this_package(notebook: Notebook) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    call = block("use/gang-frameworks.md", "## JAX").text
    notebook.ok(f"%%gpu_train --gpus 2 --ranks 2\nimport os\nimport jax\n{call}many = jax.process_count()")
    assert notebook.value("many") == 2


def test_a_sweep_is_detached_and_found_again(notebook: Notebook) -> None:
    own = {"widths": "of-the-page"}  # other tests' sweeps are on this store, too
    line = block("use/kept-sweeps.md", "## Detach it", "%%gpu_sweep").filled({"--trials 64": "--trials 3", **own})
    notebook.ok(f"{line}width = search([1, 2, 3])\nloss = 1 / width")
    notebook.ok("del sweep")
    _cell(notebook, block("use/kept-sweeps.md", "## Detach it", "%gpu_attach"), **own)
    assert notebook.value("[width, len(sweep.trials)]") == [3, 3]


def test_weights_and_biases_gets_its_key(notebook: Notebook) -> None:
    """A stand-in that looks for the key, as the library does."""
    stand_in = (
        "import contextlib, os\n\n@contextlib.contextmanager\ndef init(project):\n"
        "    assert os.environ['WANDB_API_KEY'] == 'k'\n    yield Run()\n\n"
        "class Run:\n    def log(self, what):\n        print('logged', what)\n"
    )
    (notebook.folder / "wandb.py").write_text(stand_in)
    notebook.ok("os.environ['WANDB_API_KEY'] = 'k'")
    assert "logged {'loss': 0.5}" in _cell(notebook, block("use/trackers.md", "## Weights & Biases")).text()


def test_old_results_are_removed(notebook: Notebook, tmp_path: Path) -> None:
    for line in block("use/results.md", "## Remove old results").commands():
        words = line.partition("#")[0].split()[2:]
        done = subprocess.run(
            [sys.executable, "-m", "jupyter_gpu_release.cli", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, (line, done.stderr)
