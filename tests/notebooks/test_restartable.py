"""Restartable cells in real kernels on a real cluster: preempted, and resumed in the same round of their loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kernel_bed import Notebook, Shown

Open = Callable[[], Notebook]

LOOP = """%%gpu_train --gpus 4 --restartable --priority low
import os, time
import jupyter_gpu_release as gpu_release
for epoch in gpu_release.resumable(range(5)):
    history.append(epoch)
    print("epoch", epoch)
    with open(gpu_release.run_dir / "epochs", "a") as epochs:
        print(epoch, file=epochs)
    while epoch == 2 and not os.path.exists("end-of-2"):
        time.sleep(0.01)
last = epoch
"""
URGENT = """%%gpu_train --gpus 4 --priority high
import os, time
while not os.path.exists("end-of-urgent"):
    time.sleep(0.01)
"""


def _line(shown: Shown) -> str:
    """What the line under the cell said last."""
    texts = shown.displays()
    return str(texts[-1]) if texts else ""


def _preempted(low: Notebook, high: Notebook, folder: Path) -> tuple[str, str]:
    """Begin the loop, have it preempted for the urgent cell, which then runs; returns both cells."""
    low.ok("history = []\nmine = history")
    loop = low.begin(LOOP)
    low.until(lambda shown: shown.lines()[-1:] == ["epoch 2"])
    urgent = high.begin(URGENT)
    low.until(lambda shown: _line(shown).startswith("being preempted"))
    (folder / "end-of-2").touch()
    waits = low.until(lambda shown: _line(shown).startswith("preempted"))
    assert re.match(r"preempted for another run of yours at epoch 3 · queued for 4 ", _line(waits))
    high.until(lambda shown: "running on" in _line(shown))
    return loop, urgent


def test_a_cell_steps_aside_and_goes_on_where_it_was(open_notebook: Open, tmp_path: Path) -> None:
    low, high = open_notebook(), open_notebook()
    loop, urgent = _preempted(low, high, tmp_path)
    (tmp_path / "end-of-urgent").touch()
    assert high.end(urgent).status == "ok"
    shown = low.end(loop)
    assert shown.status == "ok", shown.traceback
    assert shown.lines() == [f"epoch {number}" for number in range(5)]
    assert low.value("[history, mine is history, last, epoch]") == [[0, 1, 2, 3, 4], True, 4, 4]
    assert "· preempted for another run of yours at epoch 3, waited " in shown.receipt
    (run,) = re.findall(r"run (2\d+-\d+-\w+)", shown.receipt)
    assert low.ok(f"%gpu_logs {run}").lines() == shown.lines()


def test_an_interrupt_while_it_was_preempted_brings_home_what_was_saved(open_notebook: Open, tmp_path: Path) -> None:
    low, high = open_notebook(), open_notebook()
    loop, urgent = _preempted(low, high, tmp_path)
    low.interrupt()
    shown = low.end(loop)
    assert shown.status == "error"
    assert "KeyboardInterrupt" in shown.traceback
    assert low.value("[history, mine is history]") == [[0, 1, 2], True]
    (tmp_path / "end-of-urgent").touch()
    assert high.end(urgent).status == "ok"


def test_a_loop_that_cannot_be_entered_again_is_named_before_anything_is_sent(notebook: Notebook) -> None:
    nested = "for i in resumable(range(3)):\n    for j in resumable(range(3)):\n        pass"
    shown = notebook.run(f"%%gpu_train --restartable\nfrom jupyter_gpu_release import resumable\n{nested}")
    assert "--restartable: line 4: a resumable loop inside of the one in line 3" in shown.traceback


def test_a_cell_without_the_option_is_left_alone(open_notebook: Open) -> None:
    notebook = open_notebook()
    notebook.ok("history = []")
    plain = notebook.ok(LOOP.replace(" --restartable", "").replace("epoch == 2", "False"), 180)
    assert plain.lines() == [f"epoch {number}" for number in range(5)]
