"""The stop button in a real kernel, at every stage of a run."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import ErrorInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel_outputs import Kernel, Outputs
    from script_gateway import FakeGateway, FakeRun

INTERRUPTED = ErrorInfo("KeyboardInterrupt", "", ["-----", "KeyboardInterrupt: there"])


def interrupted_when(kernel: Kernel, begun: threading.Event, code: str) -> Outputs:
    """Run ``code`` and press the button each time the script says so."""
    message = kernel.start(code)
    assert begun.wait(20)
    kernel.manager.interrupt_kernel()
    return kernel.finish(message)


def test_running_cell_is_interrupted_and_brings_home_what_it_had(
    kernel: Kernel, gateway: FakeGateway, graph_of: Any
) -> None:
    begun = threading.Event()

    @gateway.script("long")
    def play(run: FakeRun) -> None:
        run.start()
        begun.set()
        assert run.wait_for_signal() == "interrupt"
        run.say("stopping\n")
        run.fail(INTERRUPTED, "interrupted", state="cancelled", **graph_of(epochs=40))

    outputs = interrupted_when(kernel, begun, "%%gpu_train --name long\nfit()")
    assert outputs.reply["ename"] == "KeyboardInterrupt"
    assert outputs.text() == "stopping\n"
    assert outputs.traceback.startswith("-----\n■ \x1b[1;31mcancelled: interrupted\x1b[0m · 1 simulated GPU")
    assert outputs.traceback.endswith("\n\nKeyboardInterrupt: there")
    assert "back: epochs (int)" in outputs.traceback
    assert kernel.value("epochs") == "40"


def test_second_interrupt_kills(kernel: Kernel, gateway: FakeGateway):
    begun, again = threading.Event(), threading.Event()
    seen: list[str] = []

    @gateway.script("deaf")
    def play(run: FakeRun) -> None:
        run.start()
        begun.set()
        seen.append(run.wait_for_signal())
        again.set()
        seen.append(run.wait_for_signal())
        text = "the cell did not react to the interrupt and was killed; its names are gone"
        run.fail(ErrorInfo("KeyboardInterrupt", text, code="failed"), "interrupted", state="cancelled")

    message = kernel.start("%%gpu_train --name deaf\nfit()")
    for event in (begun, again):
        assert event.wait(20)
        kernel.manager.interrupt_kernel()
    outputs = kernel.finish(message)
    assert seen == ["interrupt", "kill"]
    assert outputs.error["ename"] == "KeyboardInterrupt"
    assert "its names are gone" in outputs.traceback


def test_waiting_run_is_cancelled(kernel: Kernel, gateway: FakeGateway):
    begun = threading.Event()

    @gateway.script("queued")
    def play(run: FakeRun) -> None:
        run.accept()
        run.update("queued", position=1)
        begun.set()
        assert run.wait_for_signal() == "interrupt"
        run.fail(ErrorInfo("RunCancelledError", "cancelled", code="cancelled"), "interrupted", state="cancelled")

    kernel.run("big = b'x' * (3 << 20)")
    outputs = interrupted_when(kernel, begun, "%%gpu_train --name queued\nlen(big)")
    assert outputs.error["ename"] == "KeyboardInterrupt"
    assert list((gateway.store / "runs").iterdir()) == []


def test_a_submission_that_is_not_answered_can_be_interrupted(kernel: Kernel, gateway: FakeGateway):
    begun = threading.Event()

    @gateway.script("slow")
    def play(run: FakeRun) -> None:
        begun.set()
        assert run.wait_for_signal() == "interrupt"
        run.accept()
        run.fail(ErrorInfo("RunCancelledError", "cancelled", code="cancelled"), "interrupted", state="cancelled")

    outputs = interrupted_when(kernel, begun, "%%gpu_train --name slow\n1")
    assert outputs.error["ename"] == "KeyboardInterrupt"


def test_a_cell_that_catches_the_interrupt_ends_well(kernel: Kernel, gateway: FakeGateway, graph_of: Any):
    begun = threading.Event()

    @gateway.script("catch")
    def play(run: FakeRun) -> None:
        run.start()
        begun.set()
        run.wait_for_signal()
        run.end(**graph_of(best=7))

    outputs = interrupted_when(kernel, begun, "%%gpu_train --name catch\nfit()")
    assert outputs.reply["status"] == "ok"
    assert kernel.value("best") == "7"


def test_the_interrupt_that_ended_the_cell_does_not_end_the_wait_for_its_results(
    kernel: Kernel, gateway: FakeGateway, graph_of: Any
) -> None:
    begun, seen = threading.Event(), threading.Event()

    @gateway.script("large")
    def play(run: FakeRun) -> None:
        run.start()
        begun.set()
        assert run.wait_for_signal() == "interrupt"
        run.update("persisting", gone_at=time.time())
        run.say("still followed\n")
        assert seen.wait(20)
        run.fail(INTERRUPTED, "interrupted", state="cancelled", **graph_of(epochs=41))

    message = kernel.start("%%gpu_train --name large\nfit()")
    assert begun.wait(20)
    kernel.manager.interrupt_kernel()
    while kernel.client.get_iopub_msg(timeout=20)["msg_type"] != "stream":
        pass
    seen.set()
    outputs = kernel.finish(message)
    assert "back: epochs (int)" in outputs.traceback
    assert kernel.value("epochs") == "41"


def test_interrupt_while_results_are_written_ends_the_wait(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("writing")
    def play(run: FakeRun) -> None:
        run.start()
        run.end(state="persisting", values=Graph(file="values.graph"))

    message = kernel.start("%%gpu_train --name writing\nfit()")
    said = ""
    while "free again · writing the results" not in said:
        said = kernel.client.get_iopub_msg(timeout=20)["content"].get("data", {}).get("text/plain", "")
    kernel.manager.interrupt_kernel()
    outputs = kernel.finish(message)
    assert outputs.error["ename"] == "KeyboardInterrupt"
    assert "they are kept with run" in outputs.traceback
    assert gateway.runs[0].signals.empty()


def test_cancelled_from_elsewhere(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("other")
    def play(run: FakeRun) -> None:
        run.start()
        run.fail(INTERRUPTED, "interrupted", state="cancelled")

    outputs = kernel.run("%%gpu_train --name other\n1")
    assert outputs.error["ename"] == "RunCancelledError"
    assert "the run was cancelled, by" in outputs.traceback


def test_the_kernels_own_handler_is_back_afterwards(kernel: Kernel, gateway: FakeGateway):
    before = kernel.value("__import__('signal').getsignal(2).__name__")
    kernel.run("%gpu_train 1")
    assert kernel.value("__import__('signal').getsignal(2).__name__") == before
    # one statement: IPython can fail over an interrupt that comes while it compiles the next one
    message = kernel.start("print('on', flush=True), __import__('time').sleep(30)")
    while kernel.client.get_iopub_msg(timeout=20)["msg_type"] != "stream":
        pass
    kernel.manager.interrupt_kernel()
    assert kernel.finish(message).error["ename"] == "KeyboardInterrupt"


def test_an_interrupt_does_not_break_an_import(
    make_kernel: Callable[[dict[str, str]], Kernel], environment: dict[str, str]
) -> None:
    """Python 3.11 makes a RuntimeError of one that strikes while a class is made; the module is there by half then."""
    kernel = make_kernel(environment)
    kernel.run(
        "%load_ext jupyter_gpu_release\nimport dataclasses, os, signal, sys\n"
        "original = dataclasses.Field.__set_name__\n"
        "def strike(field, owner, name):\n"
        "    if owner.__name__ == 'NamespaceInfo':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return original(field, owner, name)\n"
        "dataclasses.Field.__set_name__ = strike"
    )
    outputs = kernel.run("%gpu_status")
    assert outputs.reply["ename"] == "KeyboardInterrupt"
    assert kernel.value("'jupyter_gpu_release.kernel.magics.runs' in sys.modules") == "True"


def test_an_interrupt_that_comes_too_late_does_not_cost_the_reply(kernel: Kernel):
    """It strikes while ipykernel makes the reply: there it would be caught, and the cell never end."""
    message = kernel.client.execute(
        "import signal", user_expressions={"late": "__import__('signal').raise_signal(2) or 5"}
    )
    outputs = kernel.finish(message)
    assert outputs.reply["status"] == "ok"
    assert outputs.reply["user_expressions"]["late"]["status"] == "ok"
    # a cell is interrupted as ever, also behind one that it runs
    nested = "get_ipython().run_cell('1')\nsignal.raise_signal(signal.SIGINT)\nprint('not reached')"
    assert kernel.run(nested).reply["ename"] == "KeyboardInterrupt"
