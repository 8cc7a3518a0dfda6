"""A plain IPython without a kernel: text only; the receipt is shown as displays are, the status line on stderr."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from jupyter_gpu_release.protocol.runs import ErrorInfo

if TYPE_CHECKING:
    from script_gateway import FakeGateway, FakeRun

_SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("%load_ext jupyter_gpu_release", store_history=True)
for cell in {cells!r}:
    result = shell.run_cell(cell, store_history=True)
    print("OK" if result.success else "FAILED " + type(result.error_in_exec).__name__, flush=True)
"""


#: stages of any length pass without a word, which a busy machine makes long
_QUIET = """
from jupyter_gpu_release.kernel import connection; from jupyter_gpu_release.kernel.runs import follow
connection._QUIET_S = follow._QUIET_S = follow._QUIET_WAITING_S = 3600
"""


def start(cells: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    code = _SHELL.format(cells=cells)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(cells: list[str], environment: dict[str, str]) -> tuple[str, str]:
    process = start(cells, environment)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out, err


def test_a_cell_in_a_terminal(gateway: FakeGateway, environment: dict[str, str], graph_of: Any):
    @gateway.script("good")
    def play(run: FakeRun) -> None:
        run.start()
        run.emit(
            ("stream", {"name": "stdout", "text": "hello\n"}),
            ("display", {"data": {"text/plain": "a table", "text/html": "<b>a table</b>"}}),
            ("comm", {"msg_type": "comm_open", "content": {"comm_id": "c"}}),
        )
        run.end(**graph_of(answer=42))

    out, err = run([_QUIET, "%%gpu_train --name good\nanswer = 1", "print(answer)"], environment)
    receipt = next(line for line in out.splitlines() if line.startswith("✓ 1 simulated GPU · "))
    assert "back: answer (int)" in receipt
    assert out == f"OK\nhello\na table\n{receipt}\nOK\n42\nOK\n"
    assert err == ""
    assert gateway.runs[0].payload.terminal
    assert gateway.runs[0].payload.count == 3
    assert gateway.said_bye.wait(30)


def test_errors_in_a_terminal(gateway: FakeGateway, environment: dict[str, str]):
    @gateway.script("fail")
    def play(run: FakeRun) -> None:
        run.start()
        run.fail(ErrorInfo("ValueError", "no", ["Cell In[2], line 2", "ValueError: no"]))

    out, err = run(["%%gpu_train --name fail\n1", "%%gpu_train --gpu 1\n1", "%%gpu_train\nx = = 1"], environment)
    assert "Cell In[2], line 2\n✗ failed: ValueError · 1 simulated GPU" in out + err
    assert "\n\nValueError: no\n" in out + err  # the exception is the last, as in a plain cell
    assert "did you mean --gpus?" in out + err
    assert [line for line in out.splitlines() if line.startswith(("OK", "FAILED"))] == [
        "FAILED ValueError",
        "FAILED OptionError",
        "FAILED SyntaxError",
    ]
    assert "training.py" not in out + err


def test_control_c_in_a_terminal(gateway: FakeGateway, environment: dict[str, str], graph_of: Any):
    process: list[subprocess.Popen[str]] = []

    @gateway.script("long")
    def play(run: FakeRun) -> None:
        run.start()
        process[0].send_signal(signal.SIGINT)
        assert run.wait_for_signal() == "interrupt"
        run.fail(ErrorInfo("KeyboardInterrupt", "", ["KeyboardInterrupt:"]), "interrupted", **graph_of(kept=1))

    process.append(start(["%%gpu_train --name long\nfit()", "print('kept', kept)"], environment))
    out, err = process[0].communicate(timeout=60)
    assert "FAILED KeyboardInterrupt\nkept 1\nOK\n" in out, out + err
    assert "■ cancelled: interrupted" in out + err
