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


def test_debug_after_a_failed_cell_shows_the_users_frames_and_variables(open_notebook: Callable[[], Notebook]) -> None:
    notebook = open_notebook()
    notebook.ok("config = {'a': 1}")
    failed = notebook.run(_CELL)
    assert failed.reply["ename"] == "KeyError"
    looks = ["args", "p x, scaled.tolist()", "p lock", "p huge", "p weights is config", "x = 40", "p x + 1", "l", "up"]
    looks += ["p word, z", "up", "p outer.__name__, config", "up", "q"]
    text = _COLOURS.sub("", typed(notebook, "%debug", looks).text())
    assert "x = 5\nweights = {'a': 1}\n" in text  # what ``args`` says
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


def test_debug_where_nobody_can_type_says_where_to_go(open_notebook: Callable[[], Notebook]) -> None:
    notebook = open_notebook()
    notebook.run("%%gpu_train --gpus 0\nassert []")
    refused = _COLOURS.sub("", notebook.run("%gpu_debug", allow_stdin=False).traceback)
    assert "cannot be debugged here: this front end takes no input" in refused
    assert re.search(rf"write %gpu_debug {_RUN.pattern} in JupyterLab", refused)
    assert "jupyter_gpu_release" not in refused


def test_debug_says_what_there_is_to_debug(open_notebook: Callable[[], Notebook]) -> None:
    notebook = open_notebook()
    assert "no GPU cell has failed" in notebook.run("%gpu_debug").traceback
    notebook.ok("%gpu_train --gpus 0 x = 1")
    assert "did not fail" in notebook.run("%gpu_debug last").traceback


_CHAIN = """%%gpu_train --gpus 0
class BadConfigError(Exception):
    def __init__(self, key, *, hint):
        super().__init__(key)
        self.hint = hint
def read(table, *keys, strict=True):
    depth = len(keys)
    return table[keys[-1]]
def learn(rate):
    try:
        return read({"lr": rate}, "a", "momentum")
    except KeyError as missing:
        where = "the config"
        raise BadConfigError("momentum", hint="set it") from missing
try:
    learn(0.5)
except BadConfigError as error:
    cause = len(error.args)
    1 / (cause - 1)
"""


def test_the_errors_that_an_error_came_from_have_their_frames_too(open_notebook: Callable[[], Notebook]) -> None:
    """As after a plain cell: what the debugger and tracebacks show of the chain is compared with that."""
    notebook = open_notebook()
    looks = ["exceptions", "p cause", "exceptions 1", "p where, rate", "args", "exceptions 0", "args", "p depth", "q"]

    def shown(cell: str) -> tuple[list[str], str, list[object]]:
        notebook.run(cell)
        text = _COLOURS.sub("", typed(notebook, "%debug", looks).text())
        again = [m["content"]["traceback"] for m in notebook.run("%tb").messages if m["msg_type"] == "error"]
        printed = _COLOURS.sub("", "\n".join(again[0]))
        facts = "[[type(e).__name__, [f.name for f in traceback.extract_tb(e.__traceback__)]] for e in chain()]"
        kept = "[isinstance(sys.last_value.__context__, BadConfigError), sys.last_value.__context__.hint]"
        lines = [line for line in text.splitlines() if not line.startswith("> ")]  # a cell's file name
        return lines, printed, [notebook.value(facts), notebook.value(kept)]

    notebook.ok(
        "import sys, traceback\ndef chain():\n    e = sys.last_value\n    while e is not None:\n        yield e\n"
        "        e = e.__cause__ or e.__context__"
    )
    plain, there = shown(_CHAIN.replace("%%gpu_train", "#")), shown(_CHAIN)
    assert there[0] == plain[0]
    assert "0.5\n" in "\n".join(there[0]) or "rate = 0.5" in there[0]
    assert there[2][0][0] == ["ZeroDivisionError", ["<module>"]]
    assert there[2][0][1:] == [["BadConfigError", ["<module>", "learn"]], ["KeyError", ["learn", "read"]]]
    assert there[2][1] == [True, "set it"]
    assert all(there[1].count(words) == 1 for words in ("was the direct cause", "During handling of"))


_GANG = """%%gpu_train --gpus 3 --ranks 3
import pathlib, time
from jupyter_gpu_release import ranks
def step(batch, *, scale=2):
    lost = [batch, ranks.rank]
    while ranks.rank == 1:
        if len(list(pathlib.Path().glob("there-*"))) == 2:
            raise ValueError("a bad batch")
        time.sleep(0.01)
    pathlib.Path(f"there-{ranks.rank}").touch()
    ranks.barrier()
step(ranks.rank * 10)
"""


def test_of_a_gang_the_rank_that_failed_first_is_debugged_and_any_other_on_request(
    open_notebook: Callable[[], Notebook],
) -> None:
    notebook = open_notebook()
    failed = notebook.run(_GANG)
    assert failed.reply["ename"] == "ValueError"
    looks = ["args", "p lost", "q"]
    assert "batch = 10\nscale = 2\n" in (text := _COLOURS.sub("", typed(notebook, "%debug", looks).text()))
    assert "[10, 1]" in text
    run = _RUN.search(str(notebook.ok("%gpu_runs 1").displays()))
    assert run is not None
    assert "[10, 1]" in typed(notebook, f"%gpu_debug {run[0]}", looks).text()
    assert notebook.value("__import__('sys').last_type.__name__") == "ValueError"
    assert "barrier" in typed(notebook, "%gpu_debug --rank 0", ["w", "q"]).text()
    notebook.ok("import sys, traceback\nframes = [frame for frame, _ in traceback.walk_tb(sys.last_traceback)]")
    assert notebook.value("[f.f_locals['lost'] for f in frames if f.f_code.co_name == 'step']") == [[0, 0]]
    assert notebook.value("sys.last_type.__name__") != "ValueError"
    assert f"rank 7 of run {run[0]} left no frames behind" in (
        wrong := notebook.run(f"%gpu_debug {run[0]} --rank 7").traceback
    )
    assert f"%gpu_debug {run[0]} --rank 0 has some" in wrong
    assert "not understood" in notebook.run("%gpu_debug --rank first").traceback
