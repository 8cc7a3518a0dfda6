"""VS Code: what its Jupyter extension asks a kernel, message by message, without a Jupyter server (docs/vscode.md)."""

from __future__ import annotations

import threading
from typing import Any

from kernel_outputs import Kernel
from script_gateway import FakeGateway, FakeRun

from jupyter_gpu_release.protocol.runs import ErrorInfo

INTERRUPTED = ErrorInfo("KeyboardInterrupt", "", ["KeyboardInterrupt"])
NOTEBOOK = "work/digits.ipynb"
#: flags of its execute requests: of a cell, and of what it asks for itself (variables, the notebook's name)
CELL: dict[str, Any] = {"silent": False, "store_history": True, "allow_stdin": True, "stop_on_error": True}
OWN: dict[str, Any] = {"silent": True, "store_history": False, "allow_stdin": False, "stop_on_error": False}


def _reply(kernel: Kernel, message_id: str) -> dict[str, Any]:
    while True:
        message: dict[str, Any] = kernel.client.get_shell_msg(timeout=60)
        if message["parent_header"].get("msg_id") == message_id:
            content: dict[str, Any] = message["content"]
            return content


def test_a_gpu_cell_between_the_questions_of_the_editor(kernel: Kernel, gateway: FakeGateway, graph_of: Any) -> None:
    notebooks: list[str] = []

    @gateway.script("train")
    def play(run: FakeRun) -> None:
        notebooks.append(run.request.notebook)
        run.start()
        run.say("epoch 1\n")
        run.end(**graph_of(loss=0.5))

    before = kernel.run("n = 2", **CELL).reply["execution_count"]
    assert kernel.run(f"__vsc_ipynb_file__ = {NOTEBOOK!r}", **OWN) == []
    outputs = kernel.run("%%gpu_train --name train\nloss = 1 / n", **CELL)
    assert outputs.reply["status"] == "ok"
    assert outputs.text() == "epoch 1\n"
    assert "back: loss (float)" in outputs.plain()[-1]
    shown = [m["content"]["data"] for m in outputs if m["msg_type"] in ("display_data", "update_display_data")]
    assert all("text/html" in data for data in shown if "text/plain" in data)
    assert "--vscode-foreground" in shown[-1]["text/html"]  # its theme's colour
    assert not [kind for kind in outputs.kinds if kind.startswith("comm_")]
    assert notebooks == [NOTEBOOK]
    assert kernel.run("print(type(loss).__name__, loss)", **OWN).text() == "float 0.5\n"  # its Variables view
    assert kernel.run("loss", **CELL).reply["execution_count"] == before + 2  # its own questions were not counted


def test_tab_and_hover(kernel: Kernel) -> None:
    line = "%%gpu_train --time"
    found = _reply(kernel, kernel.client.complete(line, len(line)))
    assert (found["matches"], line[found["cursor_start"] :]) == (["--timeout"], "--time")
    shown = _reply(kernel, kernel.client.inspect("%%gpu_train", 11, detail_level=0))
    assert shown["found"]
    assert "jupyter gpu docs writing-a-cell" in shown["data"]["text/plain"]


def test_help_in_a_cell_is_a_plain_text_too(kernel: Kernel) -> None:
    """The editor shows the pages of a reply below the cell."""
    (page,) = kernel.run("%%gpu_train?", **CELL).reply["payload"]
    assert page["source"] == "page"
    assert "--gpus" in page["data"]["text/plain"]


def test_run_all_stops_at_a_gpu_cell_that_fails_and_the_stop_button_reaches_one(
    kernel: Kernel, gateway: FakeGateway, graph_of: Any
) -> None:
    begun = threading.Event()

    @gateway.script("stopped")
    def play(run: FakeRun) -> None:
        run.start()
        begun.set()
        assert run.wait_for_signal() == "interrupt"
        run.fail(INTERRUPTED, "interrupted", state="cancelled", **graph_of(epochs=3))

    cell = kernel.client.execute("%%gpu_train --name stopped\nfit()", **CELL)
    below = kernel.client.execute("after = 1", **CELL)
    assert begun.wait(60)
    kernel.manager.interrupt_kernel()
    assert kernel.finish(cell).reply["ename"] == "KeyboardInterrupt"
    assert _reply(kernel, below)["status"] == "aborted"
    assert kernel.value("epochs") == "3"
