"""``--async``: cells that return at once, and what becomes of their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from background_bed import ASYNC, HELD, go, later, run_of, says
from kernel_bed import Notebook

Open = Callable[[], Notebook]


def test_a_cell_trains_while_others_draw(notebook: Notebook, until: Any) -> None:
    notebook.ok("model, scale = 'old', 2")
    started = notebook.ok(ASYNC + HELD + "print('trained', flush=True)\nmodel = {'w': [scale] * 3}\nloss = 0.5")
    assert notebook.ok("yesterday = sum(range(10))\nprint(yesterday)").text() == "45\n"
    until(lambda: "still training" in notebook.ok("model").displays()[-1], "the run begins")
    for use in ("model['w']", "model + 1", "if model: pass", "loss.item()", "len(model)", "f'{loss:.2f}'", "[*model]"):
        shown = notebook.run(use)
        assert shown.reply["ename"] == "StillTrainingError", use
        assert f"%gpu_wait {run_of(started)}" in shown.traceback
        assert "line 1" in shown.traceback
        assert "pending.py" not in shown.traceback, "frames of ours"
    go(notebook)
    notebook.ok("%gpu_wait")
    assert notebook.value("[model, loss, scale]") == [{"w": [2, 2, 2]}, 0.5, 2]


def test_names_bind_while_the_kernel_idles_and_the_cell_gets_output_and_receipt(notebook: Notebook) -> None:
    cell = notebook.begin(
        ASYNC + HELD + "print('from there', flush=True)\nfrom IPython.display import display, HTML\n"
        "display(HTML('<b>bold</b>'))\nanswer = 42"
    )
    notebook.end(cell)
    notebook.ok("print('another cell')")
    notebook._messages = []
    go(notebook)
    messages = later(notebook, cell, says("back: answer"))
    kinds = [m["msg_type"] for m in messages]
    assert "stream" in kinds
    assert says("from there")(messages)
    assert says("<b>bold</b>")(messages)
    assert notebook.value("answer") == 42  # an empty cell: nothing but the idle kernel can have bound it


def test_a_gpu_cell_waits_for_the_names_that_it_reads(notebook: Notebook) -> None:
    notebook.ok(ASYNC + HELD + "base = 20")
    notebook.ok("def double():\n    return base * 2")
    cell = notebook.begin("%%gpu_train\nmore = double() + 2")
    notebook.until(lambda shown: any("base: waiting for run" in text for text in shown.displays()))
    go(notebook)
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert notebook.value("[base, more]") == [20, 42]


def test_waiting_is_interrupted_and_the_run_goes_on(notebook: Notebook) -> None:
    notebook.ok("import os; os.environ['JPY_SESSION_NAME'] = 'a.ipynb'")  # of a Jupyter server
    started = notebook.ok(ASYNC + HELD + "kept = 1")
    cell = notebook.begin("%gpu_wait")
    notebook.until(lambda shown: any("waiting for run" in text for text in shown.displays()))
    notebook.interrupt()
    shown = notebook.end(cell)
    assert shown.reply["ename"] == "KeyboardInterrupt"
    assert f"run {run_of(started)} goes on" in shown.traceback
    go(notebook)
    notebook.ok(f"%gpu_wait {run_of(started)}")
    notebook.ok("del os.environ['JPY_SESSION_NAME']")
    assert notebook.value("kept") == 1


def test_a_run_that_fails_gives_back_what_was_there(notebook: Notebook) -> None:
    notebook.ok("model, history = 'old', []")
    cell = notebook.begin(ASYNC + HELD + "history.append(1)\nbest = 3\n1 / 0\nmodel = 'new'\nother = 1")
    notebook.end(cell)
    assert notebook.run("other + 1").reply["ename"] == "StillTrainingError"
    notebook._messages = []
    go(notebook)
    messages = later(notebook, cell, lambda found: any(m["msg_type"] == "error" for m in found))
    error = next(m["content"] for m in messages if m["msg_type"] == "error")
    assert error["ename"] == "ZeroDivisionError"
    assert "model was not made: it is what it was before" in "\n".join(error["traceback"])
    shown = notebook.run("%gpu_wait")
    assert shown.reply["ename"] == "ZeroDivisionError"
    assert notebook.ok("%gpu_wait").status == "ok"  # said once
    assert notebook.value("[model, history, best, 'other' in globals()]") == ["old", [1], 3, False]


def test_what_the_user_binds_meanwhile_stays(notebook: Notebook) -> None:
    notebook.ok("data = [1]")
    cell = notebook.begin(ASYNC + HELD + "model = 'theirs'\nloss = 1\ndata.append(2)")
    notebook.end(cell)
    notebook.ok("model = 'mine'\ndata = 'mine, too'\nlist_of = [loss]\ndel loss")
    notebook._messages = []
    go(notebook)
    messages = later(notebook, cell, says("model was bound anew meanwhile"))
    assert says("gpu_release.load(")(messages)
    assert notebook.value("[model, data, 'loss' in globals(), list_of]") == ["mine", "mine, too", False, [1]]


def test_several_at_once_and_the_latest_wins(notebook: Notebook) -> None:
    notebook.ok("kept = 'old'")
    notebook.ok(ASYNC + HELD + "kept, first = 'first', 1")
    notebook.ok(ASYNC + HELD + "kept = 'second'")
    notebook.ok(ASYNC + HELD + "import os\nif not os.path.exists('go'): kept = 1\nthird = 3")
    go(notebook)
    notebook.ok("%gpu_wait")
    assert notebook.value("[kept, first, third]") == ["second", 1, 3]


def test_runs_lists_them_with_what_to_do(notebook: Notebook, until: Any) -> None:
    started = notebook.ok(ASYNC + HELD)
    until(lambda: "running (async)" in notebook.ok("%gpu_runs 3").displays()[-1], "the run begins")
    assert f"%gpu_wait {run_of(started)}" in notebook.ok("%gpu_runs 3").displays()[-1]
    go(notebook)
    notebook.ok("%gpu_wait")
    assert "(async)" not in notebook.ok("%gpu_runs 3").displays()[-1]


def test_the_kernel_ends_and_its_run_too(open_notebook: Open, until: Any) -> None:
    first, second = open_notebook(), open_notebook()
    run = run_of(first.ok(ASYNC + HELD + "never = 1"))
    first.manager.shutdown_kernel()
    until(lambda: f"{run}  cancelled" in second.ok("%gpu_runs 5").displays()[-1], "the run's end")


def test_what_is_refused_changes_nothing(notebook: Notebook) -> None:
    notebook.ok("kept = 'old'")
    shown = notebook.run("%%gpu_train --async --gpus 400\nkept = 1")
    assert shown.reply["ename"] == "ImpossibleAskError"
    assert notebook.value("kept") == "old"
    assert "is not a run" in notebook.run("%gpu_wait nonsense").traceback
    assert "%gpu_attach" in notebook.run("%gpu_wait 20000101-000000-00000000").traceback
    assert "in the background" in notebook.run("%gpu_detach").traceback


@pytest.mark.parametrize("line", ["--async", "--detach"])
def test_imports_of_the_cell_are_not_taken_away(notebook: Notebook, line: str) -> None:
    notebook.ok("import json, os")
    notebook.ok(f"%%gpu_train {line}\nimport json, time\n{HELD}text = json.dumps([1])")
    assert notebook.ok("print(json.dumps({}), os.path.sep)").text() == "{} /\n"
    go(notebook)
    notebook.ok("%gpu_wait")
    assert notebook.value("text") == "[1]"


def test_large_results_are_bound_when_they_are_durable(notebook: Notebook) -> None:
    notebook.ok("import numpy as np")
    notebook.ok(ASYNC + "import numpy as np\nbig = np.ones(1 << 20)\nview = big[:5]")
    notebook.ok("%gpu_wait")
    assert notebook.value("[float(big.sum()), view.tolist(), bool(np.shares_memory(view, big))]") == [
        1 << 20,
        [1.0] * 5,
        True,
    ]
    notebook.ok("big[0] = 7")
    assert notebook.value("view.tolist()[0]") == 7


@pytest.mark.parametrize("line", ["--async", "--detach"])
def test_the_line_follows_its_place_in_the_queue_while_the_kernel_is_idle(
    open_notebook: Callable[[], Notebook], line: str
) -> None:
    holder, waiter = open_notebook(), open_notebook()
    holder.ok("%%gpu_train --async --gpus 4\n" + HELD)
    before = run_of(holder.ok("%%gpu_train --async --gpus 4\npass"))
    cell = waiter.begin(f"%%gpu_train {line} --gpus 4\npass")
    waiter.end(cell)
    later(waiter, cell, says("place 2"))
    holder.ok(f"%gpu_cancel {before}")
    later(waiter, cell, says("place 1"))
    go(holder)
    later(waiter, cell, says("free"))
