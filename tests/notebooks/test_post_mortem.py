"""``%debug`` after a failed GPU cell, with a keyboard: the frames are the user's, with their variables."""

from __future__ import annotations

import re
from collections.abc import Callable

from kernel_bed import Notebook, Shown

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
_CELL = """%%gpu_train --gpus 0
import threading, numpy as np
def inner(x, weights):
    scaled = np.ones(3) * x
    lock, huge = threading.Lock(), np.zeros(1 << 22)
    return scaled / 0 + weights["missing"]
def outer(z):
    word = "hello"
    return inner(z + 1,
                 config)
outer(4)
"""


def typed(notebook: Notebook, code: str, lines: list[str]) -> Shown:
    """A cell in which somebody types ``lines``, the last one ``q``, whenever it asks."""
    answers = iter(lines)
    return notebook.run(code, allow_stdin=True, stdin_hook=lambda _: notebook.client.input(next(answers)))


def test_debug_after_a_failed_cell_shows_the_users_frames_and_variables(
    open_notebook: Callable[[], Notebook],
) -> None:
    notebook = open_notebook()
    notebook.ok("config = {'a': 1}")
    failed = notebook.run(_CELL)
    assert failed.reply["ename"] == "KeyError"
    looks = ["p x, scaled.tolist()", "p lock", "p huge", "p weights is config", "x = 40", "p x + 1", "l", "up"]
    looks += ["p word, z", "up", "p outer.__name__, config", "up", "q"]
    text = _COLOURS.sub("", typed(notebook, "%debug", looks).text())
    assert "(5, [5.0, 5.0, 5.0])" in text
    assert "cannot pickle" in text
    assert "numpy.ndarray of shape (4194304,): too large to be sent" in text
    assert "True" in text
    assert "41" in text
    assert "return scaled / 0 + weights" in text
    assert "('hello', 4)" in text
    assert "('outer', {'a': 1})" in text
    assert "Oldest frame" in text
    assert "site-packages" not in text
    facts = "(sys.last_type.__name__, [f.name for f in traceback.extract_tb(sys.last_traceback)])"
    notebook.ok("import sys, traceback")
    assert notebook.value(facts) == ["KeyError", ["<module>", "outer", "inner"]]
    assert notebook.value("[f.lineno for f in traceback.extract_tb(sys.last_value.__traceback__)]") == [11, 9, 6]
    again = [m["content"] for m in notebook.run("%tb").messages if m["msg_type"] == "error"]
    assert again[0]["traceback"] == failed.reply["traceback"]
    notebook.run("1 / 0")
    run = _RUN.search(str(notebook.ok("%gpu_runs 1").displays()))
    assert run is not None
    notebook.run("%%gpu_train --gpus 0\nassert not config")
    assert "{'a': 1}" in typed(notebook, "%gpu_debug", ["p config", "q"]).text()
    assert notebook.value("sys.last_type.__name__") == "AssertionError"
    assert "'hello'" in typed(notebook, f"%gpu_debug {run[0]}", ["up", "p word", "q"]).text()


def test_debug_says_what_there_is_to_debug(open_notebook: Callable[[], Notebook]) -> None:
    notebook = open_notebook()
    assert "no GPU cell has failed" in notebook.run("%gpu_debug").traceback
    notebook.ok("%gpu_train --gpus 0 x = 1")
    assert "did not fail" in notebook.run("%gpu_debug last").traceback
