"""What a kernel says that sees another store than the cluster's, or none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import ErrorInfo

if TYPE_CHECKING:
    from kernel_outputs import Kernel
    from script_gateway import FakeGateway, FakeRun

MakeKernel = Callable[[dict[str, str]], "Kernel"]
LARGE = "big = bytes(3 << 20)"


def shown(outputs: Any) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(outputs.reply["traceback"]))


@pytest.fixture
def kernel_with(take_kernel: MakeKernel, environment: dict[str, str]) -> Callable[[Path], Kernel]:
    """A kernel whose JUPYTER_GPU_STORE is the path given."""

    return lambda store: take_kernel({**environment, "JUPYTER_GPU_STORE": str(store)})


def test_results_that_cannot_be_had_are_no_success(
    kernel_with: Callable[[Path], Kernel], gateway: FakeGateway, tmp_path: Path
):
    @gateway.script("large")
    def play(run: FakeRun) -> None:
        run.start()
        run.end(values=Graph(file="values.graph", digest="0" * 32))

    @gateway.script("both")
    def play_both(run: FakeRun) -> None:
        run.start()
        run.fail(ErrorInfo("ValueError", "x", ["there"]), values=Graph(file="values.graph", digest="0" * 32))

    kernel = kernel_with(tmp_path / "nowhere")
    outputs = kernel.run("%%gpu_train --name large\nx = 1")
    text = shown(outputs)
    assert outputs.reply["ename"] == "StoreError"
    assert text.index("StoreError") < text.index("JUPYTER_GPU_STORE") < text.index("✗ the names are not bound · 1 sim")
    assert "✓" not in "\n".join([text, *outputs.plain()])
    both = kernel.run("%%gpu_train --name both\nx = 1")
    assert both.reply["ename"] == "ValueError"
    assert "JUPYTER_GPU_STORE" in shown(both)
    assert not (tmp_path / "nowhere").exists()


def test_another_store_lacks_the_run(kernel_with: Callable[[Path], Kernel], gateway: FakeGateway, tmp_path: Path):
    @gateway.script("large")
    def play(run: FakeRun) -> None:
        run.start()
        run.end(values=Graph(file="values.graph", digest="0" * 32))

    (tmp_path / "other").mkdir()
    text = shown(kernel_with(tmp_path / "other").run("%%gpu_train --name large\nx = 1"))
    assert "JUPYTER_GPU_STORE" in text
    assert str(gateway.store) in text


def test_large_inputs_need_the_store_small_ones_do_not(
    kernel_with: Callable[[Path], Kernel], gateway: FakeGateway, tmp_path: Path
):
    kernel = kernel_with(tmp_path / "nowhere")
    kernel.run(LARGE)
    refused = kernel.run("%%gpu_train\nlen(big)")
    assert refused.reply["ename"] == "StoreError"
    assert "JUPYTER_GPU_STORE" in shown(refused)
    assert not (tmp_path / "nowhere").exists()
    assert not gateway.runs
    assert kernel.run("%%gpu_train\n1").reply["status"] == "ok"


def test_a_store_that_was_unmounted_is_not_made_anew_for_inputs(
    kernel_with: Callable[[Path], Kernel], gateway: FakeGateway, tmp_path: Path
):
    (tmp_path / "mount point").mkdir()
    kernel = kernel_with(tmp_path / "mount point")
    kernel.run(LARGE)
    refused = kernel.run("%%gpu_train\nlen(big)")
    assert refused.reply["ename"] == "StoreError"
    assert "is it mounted?" in shown(refused)
    assert list((tmp_path / "mount point").iterdir()) == []
    assert not gateway.runs
