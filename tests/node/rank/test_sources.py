"""Tracebacks and ``inspect`` in a GPU cell know the text of the notebook's cells."""

from __future__ import annotations

import re
import types
from typing import Any

import pytest
from node_bed import Node, Run

from jupyter_gpu_release.protocol.cell import CellSource, Graph
from jupyter_gpu_release.serialization import codec, exceptions
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

NAME = "/tmp/ipykernel_20706/1873216790.py"
TEXT = "# helpers\ndef fails(x):\n    y = x + 1\n    raise ValueError(y)  # on purpose\n"


@pytest.fixture
def sent() -> dict[str, Any]:
    """A function of an ordinary cell, on its way into a GPU cell."""
    home = types.ModuleType("__main__").__dict__
    exec(compile(TEXT, NAME, "exec"), home)
    dump = codec.dump({"fails": home["fails"]}, NamespaceInfo(home, at_home=True))
    inputs = Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers])
    return {"inputs": inputs, "sources": [CellSource(NAME, 1, TEXT)]}


def shown(run: Run) -> str:
    assert run.outcome.error is not None
    return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(run.outcome.error.traceback))


def test_a_traceback_leads_into_the_cell_of_the_function(node: Node, sent: dict[str, Any]) -> None:
    text = shown(node.run("z = 1\nfails(z)", count=2, filename="<gpu-cell-2-abc>", **sent))
    assert "Cell In[1], line 4" in text
    assert "----> 4     raise ValueError(y)  # on purpose" in text
    assert "Cell In[2], line 3" in text
    assert "Could not get source" not in text
    assert "ipykernel" not in text


def test_inspect_finds_the_source(node: Node, sent: dict[str, Any]) -> None:
    source = "import inspect\nprint(inspect.getsource(fails))\ndef mine():\n    pass\nprint(inspect.getsource(mine))"
    run = node.run(source, filename="<gpu-cell-2-abc>", **sent)
    assert run.text() == TEXT.partition("\n")[2] + "\ndef mine():\n    pass\n\n"


def test_a_scripted_function(node: Node, sent: dict[str, Any]) -> None:
    pytest.importorskip("torch")
    source = "import torch\n@torch.jit.script\ndef twice(x: int) -> int:\n    return 2 * x\nprint(twice(4))"
    assert node.run(source, filename="<gpu-cell-2-abc>", **sent).text() == "8\n"


def test_the_cell_is_compiled_under_the_name_that_the_kernel_gave(node: Node) -> None:
    source = "def f(): pass\nprint(f.__code__.co_filename)\nget_ipython().run_cell('def g(): pass')\n"
    run = node.run(source + "print(g.__code__.co_filename == f.__code__.co_filename)", filename="<gpu-cell-2-abc>")
    assert run.text() == "<gpu-cell-2-abc>\nFalse\n"


@pytest.mark.parametrize("call", ["sys.exit(3)", "exit(0)", "quit(3)", "exit()", "raise SystemExit('why')"])
def test_leaving_the_cell_is_an_error_at_its_line(node: Node, call: str) -> None:
    run = node.run(f"import sys\n{call}\nprint('not reached')")
    assert run.outcome.status == "error"
    assert run.outcome.error is not None
    assert run.outcome.error.ename == "SystemExit"
    assert run.outcome.error.evalue == next((word for word in ("3", "0", "why") if word in call), "")
    text = shown(run)
    assert f"----> 3 {call}" in text
    assert "site-packages" not in text
    assert "__call__" not in text
    assert (run.text(), run.text("stderr")) == ("", "")


def test_leaving_in_a_cell_of_one_line(node: Node) -> None:
    assert "SystemExit" in shown(node.run("exit"))


@pytest.mark.parametrize("call", ["input('name?')", "getpass.getpass()", "getpass.getpass('key: ', stream=None)"])
def test_asking_fails_at_the_users_line(node: Node, call: str) -> None:
    text = shown(node.run(f"import getpass\n{call}"))
    assert f"----> 3 {call}" in text
    assert "shell.py" not in text
    assert ("getpass() cannot ask" if "pass" in call else "input() cannot ask") in text


def test_an_exception_of_the_cells_own_class_is_written_down(node: Node) -> None:
    source = "class E(KeyError):\n    def __init__(self, *, code):\n        self.code = code\nraise E(code=3)"
    run = node.run(source)
    assert run.outcome.error is not None
    found = exceptions.unpack_error(run.outcome.error.pickled)
    assert found.classes[:2] == [("__main__", "E"), ("builtins", "KeyError")]
    assert list(found.attributes) == ["code"]
