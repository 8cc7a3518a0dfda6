"""The line magics on a real cluster, from real kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu_release.client.autostart import Ready

if TYPE_CHECKING:
    from kernel_outputs import Kernel

MakeKernel = Callable[[dict[str, str]], "Kernel"]


@pytest.fixture
def on_cluster(home: dict[str, str], cluster: Ready) -> dict[str, str]:
    """Environment of a kernel that uses the session's cluster."""
    return {**home, "JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)}


@pytest.fixture
def notebook(take_kernel: MakeKernel, on_cluster: dict[str, str]) -> Kernel:
    return take_kernel(on_cluster)


def test_a_run_is_listed_and_its_output_shown_again(notebook: Kernel, until: Any):
    body = "from IPython.display import display, HTML\nprint('hello')\ndisplay(HTML('<b>bold</b>'))\nanswer = 42"
    first = notebook.run(f"%%gpu_train --name 'my run'\n{body}", 60)
    assert first.reply["status"] == "ok", first.traceback
    assert notebook.value("answer") == "42"
    facts = [m["content"]["metadata"].get("jupyter_gpu_release") for m in first if m["msg_type"].endswith("data")]
    run = facts[-1]["run"]
    assert facts[-1]["release_ms"] is not None
    until(lambda: "succeeded" in notebook.run("%gpu_runs 1").plain()[0], "its results to be durable")
    listed = notebook.run("%gpu_runs 3").plain()[0]
    assert run in listed
    assert "my run" in listed
    for name in (run, "last"):
        again = notebook.run(f"%gpu_logs {name}")
        assert again.text() == "hello\n"
        assert [m["content"]["data"]["text/html"] for m in again if m["msg_type"] == "display_data"] == ["<b>bold</b>"]
        assert f"[run {run}: succeeded]" in again.text("stderr")


def test_status_and_estimate(notebook: Kernel, until: Any):
    nobody = "4 simulated GPUs: 0 held, 4 free"
    until(lambda: nobody in notebook.run("%gpu_status").plain()[0], "what other tests' kernels held is free")
    notebook.run("big = bytes(3 << 20)")
    sent, estimate = notebook.run("%%gpu_train --gpus 2 --estimate\nlen(big)").plain()
    assert sent.startswith("To be sent: 3 MiB through the store")
    assert estimate == "2 of 4 simulated GPUs wanted, 4 free: it would start at once"
    refused = notebook.run("%%gpu_train --gpus 2 --queue research --estimate\n1").plain()[-1]
    assert "it would be refused: --queue research: there is no such queue (you may use: default)" in " ".join(
        refused.split()
    )
    assert notebook.run("%gpu_queue").plain() == ["Nobody waits"]
    assert "0 held" in notebook.run("%gpu_status").plain()[0]


def test_cancelled_from_another_notebook(notebook: Kernel, take_kernel: MakeKernel, on_cluster: dict[str, str]):
    message = notebook.start("%%gpu_train\nprint('begun', flush=True)\nimport time\ntime.sleep(600)")
    while notebook.client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
        pass
    other = take_kernel(on_cluster)
    assert "ending" in other.run("%gpu_cancel last").text()
    outputs = notebook.finish(message)
    assert outputs.error["ename"] == "RunCancelledError"


def test_runs_that_are_not_there(notebook: Kernel):
    assert notebook.run("%gpu_logs 20000101-000000-00000000").error["ename"] == "NoSuchRunError"
    assert notebook.run("%gpu_cancel 20000101-000000-00000000").error["ename"] == "NoSuchRunError"
    assert "as listed by %gpu_runs" in notebook.run("%gpu_logs nonsense").traceback
    assert "no run is named" in notebook.run("%gpu_cancel").traceback
    assert notebook.run("%gpu_runs many").error["ename"] == "OptionError"
    assert "takes no words" in notebook.run("%gpu_status please").traceback


def test_large_values_go_through_the_store_both_ways(notebook: Kernel):
    notebook.run("big = bytearray(5 << 20)")
    outputs = notebook.run("%%gpu_train\nbig[7] = 1\ntwice = big + big", 60)
    assert outputs.reply["status"] == "ok", outputs.traceback
    assert notebook.value("(big[7], len(twice), twice[7])") == "(1, 10485760, 1)"


def test_gpus_are_kept_for_the_next_cell_and_given_back(notebook: Kernel):
    assert notebook.run("%gpu_release").text() == "nothing is kept\n"
    first = notebook.run("%%gpu_train --gpus 2 --keep 10m\nimport os\nhere = os.environ['CUDA_VISIBLE_DEVICES']", 60)
    kept = first.plain()[-1]
    assert "GPUs kept for 10 min (until " in kept
    assert "%gpu_release gives them back" in kept
    assert "2 held (2 of them kept warm)" in notebook.run("%gpu_status").plain()[0]
    assert "warm, " in notebook.run("%gpu_status").plain()[1]
    estimate = notebook.run("%%gpu_train --gpus 2 --estimate\n1").plain()[-1]
    assert "it would start at once where the cell before it ran" in " ".join(estimate.split())
    assert notebook.run("%gpu_config keep=auto").reply["status"] == "ok"
    failed = notebook.run("%%gpu_train --gpus 2\nagain = os.environ['CUDA_VISIBLE_DEVICES']\n1 / 0", 60)
    assert "2 simulated GPUs, kept by the cell before" in failed.traceback
    assert "GPUs kept until somebody waits, at most 5 min (until " in failed.traceback
    assert notebook.value("here == again") == "True"
    released = notebook.run("%gpu_release").text()
    assert released.startswith("given back: 2 simulated GPUs (")
    assert notebook.run("%gpu_release").text() == "nothing is kept\n"
    assert "0 held, 4 free" in notebook.run("%gpu_status").plain()[0]
