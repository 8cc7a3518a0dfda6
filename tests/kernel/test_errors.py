"""Cells that fail, in a real kernel: whose error it is, what is shown, what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.protocol.runs import ErrorInfo
from jupyter_gpu_release.protocol.session import Refused
from jupyter_gpu_release.serialization import exceptions
from jupyter_gpu_release.store.graph_file import blobs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_outputs import Kernel
    from script_gateway import FakeGateway, FakeRun


def failing(run: FakeRun, error: Exception, **facts: Any) -> None:
    lines = ["-----", f"Cell In[1], line 2: {error}"]
    pickled = exceptions.pack_error(error)
    run.fail(ErrorInfo(type(error).__name__, str(error), lines, pickled=pickled), **facts)


def test_an_error_is_the_users_own(
    kernel: Kernel, gateway: FakeGateway, graph_of: Any, hush: Callable[[Kernel], None]
) -> None:
    hush(kernel)

    @gateway.script("fail")
    def play(run: FakeRun) -> None:
        run.start()
        failing(run, ZeroDivisionError("no"), **graph_of(history=[1, 2]))

    outputs = kernel.run("%%gpu_train --name fail\n1 / 0")
    assert outputs.reply["status"] == "error"
    assert outputs.reply["ename"] == "ZeroDivisionError"
    assert outputs.kinds == ["error"]
    assert outputs.traceback.startswith("-----\n✗ \x1b[1;31mfailed: ZeroDivisionError\x1b[0m · 1 simulated GPU")
    assert outputs.traceback.endswith("\n\nCell In[1], line 2: no")
    assert "training.py" not in outputs.traceback
    assert kernel.value("history") == "[1, 2]"
    caught = kernel.run(
        "try:\n    get_ipython().run_cell_magic('gpu_train', '--name fail', '1/0')\n"
        "except ZeroDivisionError as e:\n    print('caught', e)"
    )
    assert caught.text() == "caught no\n"


def test_run_all_stops_at_an_error_unless_the_client_says_otherwise(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("fail")
    def play(run: FakeRun) -> None:
        run.start()
        failing(run, ValueError("x"))

    kernel.client.execute("%%gpu_train --name fail\n1")
    second = kernel.client.execute("after = 1")
    statuses = {}
    while second not in statuses:
        reply = kernel.client.get_shell_msg(timeout=20)
        statuses[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
    assert statuses[second] == "aborted"
    kernel.client.execute("%%gpu_train --name fail\n1", stop_on_error=False)
    assert kernel.run("print('went on')").text() == "went on\n"


def test_exit_status_and_syntax_errors_of_the_remote_side(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("remote")
    def play(run: FakeRun) -> None:
        run.start()
        failing(run, SyntaxError("bad token"))

    outputs = kernel.run("%%gpu_train --name remote\neval('1+')")
    assert outputs.error["ename"] == "SyntaxError"
    assert "line 2: bad token" in outputs.traceback


def test_other_ranks_errors_are_shown_once(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("gang")
    def play(run: FakeRun) -> None:
        run.start()
        run.emit(
            ("stream", {"name": "stdout", "text": "hi\n", "rank": 1}),
            ("error", {"ename": "KeyError", "evalue": "'k'", "traceback": ["T1"], "rank": 1}),
            ("error", {"ename": "ValueError", "evalue": "x", "traceback": ["T0"]}),
        )
        failing(run, ValueError("x"))

    outputs = kernel.run("%%gpu_train --gpus 2 --ranks 2 --name gang\n1")
    assert "[rank 1] hi\n[rank 1] T1" in outputs.plain()
    assert outputs.error["ename"] == "ValueError"
    again = kernel.run(f"%gpu_logs {gateway.runs[-1].request.run}")
    assert "in rank 1:\nT1\nin rank 0:\nT0\n" in again.text("stderr")


def test_a_process_group_without_ranks_gets_the_hint(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("alone")
    def play(run: FakeRun) -> None:
        run.start()
        run.end()

    kernel.run("def join():\n    dist.init_process_group('gloo')")
    for cell in ("join()", "import torch.distributed as dist\nif False:\n    dist.init_process_group()"):
        assert "--ranks 4 runs it as 4" in kernel.run(f"%%gpu_train --gpus 4 --name alone\n{cell}").text("stderr")
    for options in ("--gpus 4 --ranks 4", "--gpus 1"):
        assert "--ranks" not in kernel.run(f"%%gpu_train {options} --name alone\njoin()").text("stderr")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("%%gpu_train --ranks 2\n1", "each rank has a GPU of its own"),
        ("%%gpu_train --gpus 2 --ps 1\n1", "--ps 1 without --ranks"),
        ("%%gpu_train --gpus 4 --ranks 3\n1", "cannot be divided"),
        ("%%gpu_train --gpus 6 --ranks 3 --nodes 2\n1", "cannot be spread evenly"),
        ("%%gpu_train --gpus 2 --nodes 2\n1", "one process runs on one node"),
        ("%%gpu_train --gpus 2 --ranks 2 --gather x --skip x\n1", "in --gather and in --skip"),
        ("%%gpu_train --gpus 2 --ranks 2 --gather loses\nlosses = 1", "did you mean losses?"),
        ("%%gpu_train --gpu 2\n1", "did you mean --gpus?"),
        ("%%gpu_train --gpus 1.5\n1", "several GPUs are whole ones"),
        ("%%gpu_train --gpus -1\n1", "not a number of GPUs"),
        ("%%gpu_train 2\n1", "did you mean --gpus 2?"),
        ("%%gpu_train --unstoppable\n1", "there is no such option"),
        ("%%gpu_train --export NOT_SET_ANYWHERE\n1", "no such environment variable"),
        ("%%gpu_train --export HOME,JUPYTER_GPU_TOKEN\n1", "does not get your token"),
        ("# the fit\n%%gpu_train\n1", "not the first line of its cell"),
        ("import math\n%%gpu_train --gpus 2\nmath.pi", "not the first line of its cell"),
        ("%gpu_train", "nothing to run"),
        ("%gpu_train --gpus 1 # one", "nothing to run"),
        ("%gpu_train --gpus 1", "nothing to run"),
        ("%gpu_train -gpus 1 f()", "did you mean --gpus?"),
        ("%gpu_config gpus=-1", "not a number of GPUs"),
    ],
)
def test_bad_lines_fail_in_our_words(plain_kernel: Kernel, code: str, words: str):
    outputs = plain_kernel.run(code)
    assert outputs.reply["status"] == "error"
    assert outputs.error["ename"] == "OptionError"
    assert words in outputs.traceback
    assert len(outputs.error["traceback"]) <= 2


@pytest.mark.parametrize(
    "body", ["", "\n", "\n   \n", "\n# only words", " --estimate\n# words\n\n  # more", " --async\n#"]
)
def test_a_cell_without_code_does_nothing_and_says_so(plain_kernel: Kernel, body: str):
    outputs = plain_kernel.run(f"%%gpu_train{body}")
    assert outputs.reply["status"] == "ok"
    assert outputs.text("stderr") == "nothing to run in this cell: no GPU was taken\n"
    assert outputs.kinds == ["stream"]


def test_syntax_errors_take_no_gpu(kernel: Kernel, gateway: FakeGateway):
    outputs = kernel.run("%%gpu_train\nx = 1\ny = = 2\n")
    assert outputs.error["ename"] == "SyntaxError"
    assert "y = = 2" in outputs.traceback
    assert "line 3)" in outputs.error["evalue"]
    assert "jupyter_gpu_release" not in outputs.traceback
    assert gateway.runs == []


def test_a_refusal_leaves_nothing(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("big")
    def play(run: FakeRun) -> None:
        assert sum(size for _, size in blobs_of(gateway.store / "runs" / run.request.run / "inputs.graph")) > 3 << 20
        gateway.send(Refused(run.request.run, "impossible_ask", "this cluster has 4 GPUs, not 9", "ask for 4"))

    kernel.run("big = b'x' * (3 << 20)")
    outputs = kernel.run("%%gpu_train --gpus 9 --name big\nlen(big)")
    assert outputs.error["ename"] == "ImpossibleAskError"
    assert outputs.traceback.endswith("this cluster has 4 GPUs, not 9\n  → ask for 4")
    assert list((gateway.store / "runs").iterdir()) == []
    assert gateway.runs[0].payload.inputs.file == "inputs.graph"


def test_a_store_that_cannot_be_written(kernel: Kernel, gateway: FakeGateway):
    (gateway.store / "runs").rmdir()
    (gateway.store / "runs").write_text("in the way")
    kernel.run("big = b'x' * (3 << 20)")
    outputs = kernel.run("%%gpu_train\nlen(big)")
    assert outputs.error["ename"] == "StoreError"
    assert "is not there" in outputs.traceback
    assert gateway.runs == []


def test_ours_is_an_error_that_can_be_caught(kernel: Kernel):
    call = "get_ipython().run_cell_magic('gpu_train', '--gpus x', '1')"
    code = f"try:\n    {call}\nexcept Exception as e:\n    print(type(e).__name__)"
    assert kernel.run(code).text() == f"{OptionError.__name__}\n"


def test_what_ended_without_an_error_of_its_own(kernel: Kernel, gateway: FakeGateway):
    ends: dict[str, tuple[str, Any]] = {
        "waited": ("cancelled", {"reason": "waited longer than --wait 1s"}),
        "lost": ("lost", {"reason": "node box died"}),
    }
    for name, (state, facts) in ends.items():
        gateway.scripts[name] = lambda run, state=state, facts=facts: (run.accept(), run.update(state, **facts))
    waited = kernel.run("%%gpu_train --name waited\n1")
    assert waited.error["ename"] == "RunCancelledError"
    assert "waited longer than --wait 1s" in waited.traceback
    lost = kernel.run("%%gpu_train --name lost\n1")
    assert lost.error["ename"] == "RunLostError"


def test_killed_for_memory_is_said(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("memory")
    def play(run: FakeRun) -> None:
        run.start()
        run.fail(ErrorInfo("OutOfMemory", "used 9 of 8 GiB", code="failed", hint="ask for more --memory"), "memory")

    outputs = kernel.run("%%gpu_train --name memory\n1")
    assert outputs.error["ename"] == "RunFailedError"
    assert (
        "used 9 of 8 GiB\n  → ask for more --memory\n✗ \x1b[1;31mfailed: ended for its memory\x1b[0m"
        in outputs.traceback
    )
