"""Cells that are saved while they go on, and killed: they begin again from the last save."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from node_bed import Node
from resuming_bed import Attempts, loaded, save_of, saves_of

from jupyter_gpu_release.node.rank.resuming.run_files import set_back
from jupyter_gpu_release.node.rank.resuming.save_pace import SavePace

Until = Callable[..., Any]

_LOOP = """
import random
random.seed(1)
print("pid", os.getpid(), flush=True)
seen = []
for n in gpu_release.resumable(range(100), every=0.05):
    seen.append((n, random.random()))
    with open(gpu_release.run_dir / "rounds", "a") as file:
        file.write(f"{n}\\n")
    (gpu_release.run_dir / f"file-{n}").touch()
    time.sleep(0.005)
    while n == 60 and not list(gpu_release.run_dir.parent.glob("save-*.graph")):
        time.sleep(0.005)
    pause(n)
rest = random.random()
"""


def test_a_cell_that_is_killed_goes_on_from_its_last_save(node: Node, until: Until) -> None:
    undisturbed, attempts = Attempts(node, _LOOP, []), Attempts(node, _LOOP, [99])
    until(lambda: saves_of(attempts) and attempts.stops_left() == 0, "it was saved, and is at its end")
    os.kill(int(attempts.text.split()[1]), signal.SIGKILL)
    assert attempts.run.wait().status == "died"
    saves = saves_of(attempts)
    assert [save.number for save in saves] == list(range(1, len(saves) + 1))
    last = saves[-1]
    assert last.values is not None
    assert last.round is not None
    saved = loaded(last.values, attempts.folder).values["seen"]
    assert [n for n, _number in saved] == list(range(last.round - 1))
    assert len(list(attempts.folder.glob("save-*.graph"))) <= 3
    attempts.begin(last)
    assert undisturbed.run.wait().status == attempts.run.wait().status == "ok", attempts.run.outcome
    assert attempts.names()["seen"] == undisturbed.names()["seen"]
    assert attempts.names()["rest"] == undisturbed.names()["rest"]
    files = attempts.folder / "files"
    assert (files / "rounds").read_text() == "".join(f"{n}\n" for n in range(100))
    assert f"again from n {last.round - 1}" in [e.data["text"] for e in attempts.events if e.kind == "note"]
    assert not any("left behind" in note for note in attempts.run.outcome.notes)


def test_a_cell_that_is_killed_without_a_save_begins_again_in_an_empty_folder(node: Node, until: Until) -> None:
    attempts = Attempts(node, _LOOP.replace("0.05", "0").replace("n == 60", "False"), [5])
    until(lambda: attempts.stops_left() == 0, "it has begun")
    os.kill(int(attempts.text.split()[1]), signal.SIGKILL)
    assert attempts.run.wait().status == "died"
    attempts.begin(None)
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert (attempts.folder / "files" / "rounds").read_text() == "".join(f"{n}\n" for n in range(100))
    assert "again from the beginning" in [e.data["text"] for e in attempts.events if e.kind == "note"]


_SLOW = """
class Slow:
    def __reduce__(self):
        if "saver" in open("/proc/self/comm").read():  # as long as it lives
            (folder / "saving").touch()
            time.sleep(1000)
        return (Slow, ())

folder, slow = gpu_release.run_dir.parent, Slow()
for n in gpu_release.resumable(range(10**9), every=0.01):
    with open(folder / "rounds", "a") as file:
        print(n, file=file)
    if (folder / "end").exists():
        break
    time.sleep(0.005)
"""


def test_a_notice_during_a_save_waits_for_nothing(node: Node, until: Until) -> None:
    """The save that is under way is given up: the one of the notice is newer."""
    attempts = Attempts(node, _SLOW, [])
    until((attempts.folder / "saving").exists, "it is being saved")
    attempts.ask()
    outcome = attempts.run.wait()
    assert (outcome.status, saves_of(attempts)) == ("preempted", [])
    attempts.begin(save_of(outcome))
    (attempts.folder / "end").touch()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    rounds = [int(line) for line in (attempts.folder / "rounds").read_text().split()]
    assert rounds == list(range(len(rounds)))


def test_a_cell_that_cannot_be_moved_says_so_before_anybody_asks(node: Node, until: Until) -> None:
    source = (
        "import socket\nsock = socket.socket()\nn = 0\n"
        "for n in gpu_release.resumable(range(10**9), every=0):\n    time.sleep(0.01)\n"
        "    if os.path.exists(f'{gpu_release.run_dir}/end'):\n        break\nprint(sock is None)"
    )
    attempts = Attempts(node, source, [], is_tried=True)
    until(lambda: attempts.refusals, "it says that it cannot be moved")
    assert "cannot be moved: `sock` is an open socket" in attempts.refusals[0].reason
    assert not attempts.ask()
    (attempts.folder / "files" / "end").touch()
    assert attempts.run.wait().status == "ok"
    assert attempts.text == "False\n"


def test_a_save_takes_at_most_a_fiftieth_of_the_time_and_the_first_comes_after_a_minute() -> None:
    pace = SavePace(100.0)
    assert (pace.due_s, pace.is_trial(101.0)) == (101.0, True)
    pace.note_done(101.2, 0.2, was_trial=True)
    assert (pace.due_s, pace.is_trial(160.0)) == (160.0, False)
    pace.note_done(160.0, 0.1, was_trial=False)
    assert pace.due_s == 220.0
    pace.note_done(220.0, 4.0, was_trial=False)
    assert pace.due_s == 420.0
    pace.set_every(10.0)
    assert pace.due_s == 230.0
    pace.set_every(0.0)
    assert pace.due_s == float("inf")


def test_a_cell_that_is_to_be_saved_at_once_is_not_tried_first() -> None:
    pace = SavePace(0.0)
    pace.set_every(0.5)
    assert (pace.due_s, pace.is_trial(0.5)) == (0.5, False)


@pytest.mark.parametrize("kept", [{}, {"a": 2, "below/b": 9}])
def test_files_are_set_back_to_length_and_set(tmp_path: Path, kept: dict[str, int]) -> None:
    folder, outside = tmp_path / "files", tmp_path / "outside"
    (folder / "below").mkdir(parents=True)
    for name in ("a", "below/b", "c"):
        (folder / name).write_text("12345")
    outside.write_text("12345")
    (folder / "below" / "link").symlink_to(outside)
    set_back(folder, kept)
    found = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert found == ({"a": "12", "below/b": "12345"} if kept else {})
    assert outside.read_text() == "12345"
