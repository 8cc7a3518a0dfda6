"""Functions know their cell's text wherever they go: into GPU cells, and home from them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu_release.protocol.runs import ErrorInfo
from jupyter_gpu_release.serialization import exceptions

if TYPE_CHECKING:
    from kernel_outputs import Kernel
    from script_gateway import FakeGateway, FakeRun

BIRTH = "def fails(x):\n    y = x\n    raise ValueError(y)"


def plain(lines: list[str]) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(lines))


@pytest.fixture
def cells(gateway: FakeGateway, graph_of: Any) -> None:
    """Runs named "birth" make the functions of their cell."""

    @gateway.script("birth")
    def play(run: FakeRun) -> None:
        run.start()
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile("\n" * run.payload.line_offset + run.payload.source, run.payload.filename, "exec"), space)
        run.end(**graph_of(fails=space["fails"]))


def test_a_function_of_an_ordinary_cell_takes_its_text_along(kernel: Kernel, gateway: FakeGateway):
    kernel.run("unused = 1")
    number = kernel.run(BIRTH).reply["execution_count"]
    kernel.run("%%gpu_train\nfails(1)")
    (source,) = gateway.runs[0].payload.sources
    assert source.text == BIRTH + "\n"
    assert source.count == number
    assert source.filename == kernel.value("fails.__code__.co_filename").strip("'")
    kernel.run("%%gpu_train\nunused")
    assert gateway.runs[1].payload.sources == []


@pytest.mark.usefixtures("cells")
def test_a_function_born_in_a_gpu_cell_has_its_text_here(kernel: Kernel, gateway: FakeGateway):
    made = kernel.run(f"%%gpu_train --name birth\n{BIRTH}")
    assert made.reply["status"] == "ok", made.reply
    number = made.reply["execution_count"]
    text = plain(kernel.run("fails(5)").reply["traceback"])
    assert f"Cell In[{number}], line 4" in text
    assert "----> 4     raise ValueError(y)" in text
    assert eval(kernel.value("__import__('inspect').getsource(fails)")) == BIRTH + "\n"
    kernel.run("%%gpu_train\nfails(1)")
    (source,) = gateway.runs[1].payload.sources
    assert (source.count, source.text) == (number, f"\n{BIRTH}\n")


@pytest.mark.parametrize(("body", "line"), [("x = 1\nreturn 5", "return 5"), ("x = 1\na = = 1", "a = = 1")])
def test_syntax_errors_are_shown_as_ipython_shows_them(kernel: Kernel, body: str, line: str):
    outputs = kernel.run(f"%%gpu_train\n{body}")
    text = plain(outputs.reply["traceback"])
    assert outputs.reply["ename"] == "SyntaxError"
    assert f"Cell In[{outputs.reply['execution_count']}], line 3\n" in text
    assert f"    {line}\n" in text
    assert "<cell>" not in text


def test_leaving_a_gpu_cell_is_an_error_with_a_receipt(kernel: Kernel, gateway: FakeGateway):
    @gateway.script("leave")
    def play(run: FakeRun) -> None:
        run.start()
        run.fail(ErrorInfo("SystemExit", "3", ["its line"], pickled=exceptions.pack_error(SystemExit(3))))

    outputs = kernel.run("%%gpu_train --name leave\nimport sys\nsys.exit(3)")
    assert outputs.reply["status"] == "error"
    assert outputs.reply["ename"] == "SystemExit"
    assert re.search("^✗ failed: SystemExit.*\n\nits line$", plain(outputs.reply["traceback"]))
    assert outputs.text("stderr") == ""
    assert kernel.value("1 + 1") == "2"


def test_an_exception_of_the_notebooks_own_class_is_caught_by_it(kernel: Kernel, gateway: FakeGateway):
    text = (
        "class MyErr(Exception):\n    def __init__(self, code, msg):\n        super().__init__(msg); self.code = code"
    )

    @gateway.script("own")
    def play(run: FakeRun) -> None:
        run.start()
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(text, space)
        run.fail(ErrorInfo("MyErr", "no", ["there"], pickled=exceptions.pack_error(space["MyErr"](7, "no"))))

    kernel.run(text)
    kernel.run(
        "try:\n    get_ipython().run_cell_magic('gpu_train', '--name own', '1')\nexcept MyErr as e:\n    got = e"
    )
    assert kernel.value("(got.code, got.args)") == "(7, ('no',))"
