"""Advice on notebooks that were never seen: what is worth a GPU cell, what travels, what that saves."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_release.analysis.advice import Advice, advise
from jupyter_gpu_release.analysis.gpu_work import WorkFinder
from jupyter_gpu_release.analysis.notebook_file import as_python, read_notebook
from jupyter_gpu_release.errors import OptionError

_TRAINING = """import torch
from torch import nn
class Net(nn.Module):
    def forward(self, x):
        return x
def train_epoch(model, loader):
    for x in loader:
        loss = model(x).sum()
        loss.backward()
"""


def code(source: str, start_s: float | None = None, took_s: float = 0.0, **more: Any) -> dict[str, Any]:
    """A code cell, with times as JupyterLab and nbclient record them."""
    stamp = "2026-01-01T00:{:02d}:{:02d}Z"
    times = {}
    if start_s is not None:
        ends = [stamp.format(*divmod(int(second), 60)) for second in (start_s, start_s + took_s)]
        times = {"execution": {"iopub.status.busy": ends[0], "iopub.status.idle": ends[1]}}
    return {"cell_type": "code", "id": "c", "metadata": times, "outputs": [], "source": source, **more}


def write(path: Path, *cells: dict[str, Any], **metadata: Any) -> Path:
    path.write_text(json.dumps({"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# Title"]}
    return write(
        tmp_path / "a.ipynb",
        text,
        code(_TRAINING, 0, 5),
        code("%matplotlib inline\nmodel = Net()\nloader = [torch.ones(3)]", 5, 1),
        code(["model = model.to('cuda')\n"], 6, 2),
        code("train_epoch(model, loader)\nhistory = 1", 600, 300),
        code("%%time\nprint(history)", 900, 10),
        code("!ls\nx = !ls", 1000, 20),
    )


def kinds(advice: Advice) -> list[str]:
    return [each.kind for each in advice.cells]


def test_a_training_cell_is_found_through_its_functions(notebook: Path):
    advice = advise(read_notebook(notebook))
    assert kinds(advice) == ["plain", "plain", "moves", "gpu", "plain", "plain"]
    (worth,) = advice.worth
    assert worth.reason == "loss.backward() in train_epoch"
    assert worth.sent == ("loader", "model", "train_epoch")
    assert worth.back == ("history", "loader", "model")
    # from the third cell's start, 6 s, to the end of the last, 1020 s; of that the fourth took 300
    assert (advice.plain_s, advice.cells_s) == (1014.0, 300.0)


def test_what_a_function_only_makes_things_of_does_not_come_back(tmp_path: Path):
    trains = "def train_new(loader):\n    loss = Net()(loader).sum()\n    loss.backward()\n    return loss\n"
    path = write(tmp_path / "a.ipynb", code(_TRAINING + trains), code("loader = [torch.ones(3)]\ntrain_new(loader)"))
    (worth,) = advise(read_notebook(path)).worth
    assert (worth.sent, worth.back) == (("Net", "train_new"), ("loader",))


def test_the_copy_has_the_magics_and_everything_else_as_it_was(notebook: Path):
    before = json.loads(notebook.read_text())
    after = json.loads(advise(read_notebook(notebook)).rewritten())
    assert after["cells"][4]["source"] == "%%gpu_train\ntrain_epoch(model, loader)\nhistory = 1"
    after["cells"][4]["source"] = before["cells"][4]["source"]
    assert after == before


def test_a_notebook_that_was_never_run_has_no_times(tmp_path: Path):
    path = write(tmp_path / "b.ipynb", code("import keras\nm = keras.Sequential()\nm.fit(x)"), code("y = = 1"))
    advice = advise(read_notebook(path))
    assert kinds(advice) == ["gpu", "unread"]
    assert advice.plain_s is None


def test_short_work_is_not_worth_it_and_gpu_cells_stay(tmp_path: Path):
    path = write(
        tmp_path / "c.ipynb",
        code("import torch\nm = torch.nn.Linear(1, 1)", 0, 3),
        code("loss = m(torch.ones(1)).sum(); loss.backward()", 3, 1),
        code("%%gpu_train --gpus 2\nloss.backward()", 4, 60),
    )
    advice = advise(read_notebook(path))
    assert kinds(advice) == ["plain", "short", "already"]
    assert advice.worth == ()


def test_work_that_cannot_become_a_gpu_cell_says_why(tmp_path: Path):
    work = "import torch\nloss = torch.nn.Linear(1, 1)(x).sum()\nloss.backward()"
    cells = [code(f"%%time\n{work}"), code(f"n = input()\n{work}"), code("n = input()"), code("%%time\nn = 1")]
    found = advise(read_notebook(write(tmp_path / "a.ipynb", *cells))).cells
    assert [(each.kind, each.reason) for each in found] == [
        ("plain", "loss.backward(), but it begins with %%time: take that out first"),
        ("plain", "loss.backward(), but it asks for input: do that in a cell before"),
        ("plain", ""),
        ("plain", ""),
    ]


@pytest.mark.parametrize(
    ("source", "work"),
    [
        ("from transformers import Trainer\ntrainer = Trainer(m)\ntrainer.train()", ["trainer.train()"]),
        ("import torch\nmodel = torch.nn.Linear(1, 1)\nmodel.train()", []),
        ("from sklearn.svm import SVC\nSVC().fit(X, y)", []),
        ("import xgboost as xgb\nb = xgb.train({}, d)", ["xgb.train()"]),
        ("import cupy as cp\na = cp.ones(3)", ["cp.ones()"]),
        ("import torch\nm = torch.load('m')\nfor x in data:\n    m(x)", ["m() in a loop"]),
        ("def f():\n    loss.backward()", []),
        ("x = 1\nprint(x)", []),
    ],
)
def test_gpu_work(source: str, work: list[str]):
    assert WorkFinder().read(ast.parse(source)).work == work


def test_a_second_gpu_is_counted():
    assert WorkFinder().read(ast.parse("import torch\nm = torch.nn.Linear(1, 1).to('cuda:1')")).gpus == 2


def test_magics_and_commands_are_no_python():
    assert as_python("%%time\n%matplotlib inline\nx = !ls\n%time fit(x)\nx?") == (
        "time",
        "\npass\nx = None\nfit(x)\npass",
    )
    assert as_python("%%bash\nls") == ("bash", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a notebook"),
        ("[1]", "has no cells"),
        ('{"worksheets": []}', "old format"),
        ('{"cells": [], "metadata": {}}', "no code"),
        ('{"cells": [{"cell_type": "code", "source": 3}, 4, null], "metadata": []}', None),
        ('{"cells": [{"cell_type": "code", "source": "x"}], "metadata": {"kernelspec": {"language": "R"}}}', "in r"),
        ("\ud800", "is not a notebook"),
        (None, "no such file"),
    ],
)
def test_what_is_no_notebook_is_named(tmp_path: Path, text: str | None, said: str | None):
    path = tmp_path / "x.ipynb"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    if said is None:
        assert advise(read_notebook(path)).worth == ()
        return
    with pytest.raises(OptionError, match=said):
        read_notebook(path)


def test_ordinary_cells_are_python():
    raw = "text = '''\n%s of\n!\n'''\nrest = (a\n    % b)"
    assert as_python(raw) == ("", raw)
    assert as_python("!pip install a \\\n   b\n%timeit -n 10 -r3 f(x)\n%prun -s time -q g()\nx = !ls \\\n -l") == (
        "",
        "pass\n\nf(x)\ng()\nx = None\n",
    )
    assert as_python("%timeit -x") == ("", "-x")


def test_gpus_of_a_gpu_cell_are_those_of_its_own_line(tmp_path: Path):
    cells = [
        code(f"%%gpu_train {line}\nx = 1", 60 * at, 10) for at, line in enumerate(("--gpus a100:4", "", "--gpus 0"))
    ]
    advice = advise(read_notebook(write(tmp_path / "a.ipynb", *cells)))
    assert [each.gpus for each in advice.cells] == [4, 1, 0]
    assert (advice.plain_s, advice.cells_s) == (4 * 130.0, 50.0)


@pytest.mark.parametrize(
    ("said", "took_s"),
    [
        ("CPU times: user 2 s\nWall time: 2.5 s\n", 2.5),
        ("Wall time: 1min 2s\n", 62.0),
        ("Wall time: 30 µs", 3e-5),
        ("Wall time: 1d 1h\n", 90_000.0),
        ("Wall time: 1e+03 ms\n", 1.0),
        ("Wall time: soon", None),
    ],
)
def test_the_time_that_the_time_magic_has_printed(tmp_path: Path, said: str, took_s: float | None):
    printed = [{"output_type": "stream", "name": "stdout", "text": said.splitlines(keepends=True)}]
    notebook = read_notebook(write(tmp_path / "a.ipynb", code("%%time\nx = 1", outputs=printed)))
    assert notebook.cells[0].took_s == (took_s if took_s is None else pytest.approx(took_s))


def test_what_a_function_reads_travels_with_it_and_what_it_trains_comes_back(tmp_path: Path) -> None:
    advice = advise(
        read_notebook(
            write(
                tmp_path / "f.ipynb",
                code("import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\ndevice = 'cpu'"),
                code(
                    "model = nn.Linear(4, 2)\nopt = torch.optim.SGD(model.parameters(), 0.1)\nscale = 2.0\nunused = 1"
                ),
                code(
                    "def scaled(x):\n    return x * scale\n"
                    "def epoch(data):\n    for x in data:\n        loss = model(scaled(x).to(device)).sum()\n"
                    "        opt.zero_grad(); loss.backward(); opt.step()\n    return loss.item()"
                ),
                code("data = [torch.ones(4)]"),
                code("import math\nlosses = [epoch(data) for _ in range(3)]"),
                code("import torch.nn.functional as F\nguess = [model(x.to(device)) for x in data]"),
            )
        )
    )
    training, guessing = advice.cells[4], advice.cells[5]
    assert training.kind == guessing.kind == "gpu"
    assert set(training.sent) == {"data", "device", "epoch", "model", "opt", "scale", "scaled"}
    assert {"losses", "model", "opt"} <= set(training.back)
    assert {"device", "scale", "epoch"}.isdisjoint(training.back)
    assert (set(guessing.sent), set(guessing.back)) == ({"data", "device", "model"}, {"guess", "model"})
    assert training.cell.first_line.startswith("losses = "), "imports say nothing of a cell"
