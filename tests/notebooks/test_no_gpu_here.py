"""A plain cell that asks for a GPU in a kernel that has none is told where they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernel_bed import Notebook

_HERE = {"HAS": "This kernel has no GPU: with `%%gpu_train`", "TOOL": "`%gpu_status` shows those of the cluster"}


@pytest.fixture
def bare(notebook: Notebook) -> Iterator[Notebook]:
    notebook.ok("import os\npath = os.environ['PATH']\nos.environ['PATH'] = '/nowhere'")  # a machine may have the tool
    yield notebook
    notebook.ok("os.environ['PATH'] = path")


@pytest.mark.parametrize("code", ["torch.zeros(1).cuda()", "torch.zeros(1, device='cuda')"])
def test_a_cell_that_wants_cuda_is_told_of_the_magic(notebook: Notebook, code: str) -> None:
    shown = notebook.run(f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\nimport torch\n{code}")
    assert shown.status == "error"
    assert shown.text("stderr").count(_HERE["HAS"]) == 1


def test_other_errors_and_calls_get_no_line(notebook: Notebook) -> None:
    odd = "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError('no text')"
    assert "GPU" not in notebook.run(f"import torch\n{odd}\nraise Odd(1)").text("stderr")
    assert "GPU" not in notebook.run("1 / 0").text("stderr")
    assert "GPU" not in notebook.run("!echo nvidia-smi").text("stderr")


def test_the_tool_that_is_not_there_is_answered(bare: Notebook) -> None:
    assert bare.run("!nvidia-smi").text("stderr").count(_HERE["TOOL"]) == 1


def test_simulated_gpus_are_called_that_where_cuda_is_missed(bare: Notebook) -> None:
    shown = bare.run("%%gpu_train\nimport torch\ntorch.zeros(1).cuda()")
    assert "GPUs are simulated: CUDA finds none" in shown.receipt
    assert _HERE["HAS"] not in shown.text("stderr")
    assert "GPUs are simulated: CUDA finds none" in bare.run("%%gpu_train\n!nvidia-smi").receipt
