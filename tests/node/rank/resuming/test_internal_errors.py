"""Saves and notices that fail by a defect of ours, or of what a cell has broken: the cell goes on, and it is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from node_bed import Node
from resuming_bed import Attempts, save_of, saves_of

Until = Callable[..., Any]

#: the cell itself breaks what saves it, until the file ``mended`` is there
_BROKEN = """
from pathlib import Path
from jupyter_gpu_release.node.rank.resuming import random_state, restartable_cell, saves

def fail(*_arguments, **_options):
    raise RuntimeError("a defect of ours")

folder = gpu_release.run_dir.parent
own = {place}
{place} = fail
seen = []
for n in gpu_release.resumable(range(10**9), every={every}):
    seen.append(n)
    (folder / "looping").touch()
    time.sleep(0.005)
    if (folder / "mended").exists() and {place} is fail:
        {place} = own
        (folder / "is-mended").touch()
    if (folder / "end").exists():
        break
"""


def _notes(attempts: Attempts) -> list[str]:
    return [event.data["text"] for event in attempts.events if event.kind == "note"]


@pytest.mark.parametrize("place", ["saves.next_number", "random_state.capture", "restartable_cell.FilesSnapshot"])
def test_a_notice_whose_save_fails_is_refused_and_the_next_one_is_followed(
    node: Node, until: Until, place: str
) -> None:
    attempts = Attempts(node, _BROKEN.format(place=place, every=0), [])
    until((attempts.folder / "looping").exists, "the cell is in its loop")
    attempts.ask()
    until(lambda: attempts.refusals, "the notice is answered")
    refusal = attempts.refusals[0]
    assert refusal.for_now
    assert refusal.reason.startswith("it cannot be saved: internal error in ")
    assert refusal.reason.endswith(": RuntimeError: a defect of ours")
    (attempts.folder / "mended").touch()
    until((attempts.folder / "is-mended").exists, "it can be saved again")
    attempts.ask()
    outcome = attempts.run.wait()
    assert outcome.status == "preempted", outcome
    attempts.begin(save_of(outcome))
    (attempts.folder / "end").touch()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    seen = attempts.names()["seen"]
    assert seen == list(range(len(seen)))


@pytest.mark.parametrize("place", ["saves.next_number", "random_state.capture", "restartable_cell.Saver"])
def test_a_save_without_notice_that_fails_is_a_line_and_is_tried_again(node: Node, until: Until, place: str) -> None:
    attempts = Attempts(node, _BROKEN.format(place=place, every=0.01), [])
    until(lambda: _notes(attempts), "it says that it was not saved")
    (note,) = _notes(attempts)
    assert note.startswith("it cannot be saved: internal error in ")
    assert note.endswith(": RuntimeError: a defect of ours; it is tried again")
    (attempts.folder / "mended").touch()
    until(lambda: saves_of(attempts), "it is saved")
    (attempts.folder / "end").touch()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert _notes(attempts) == [note]
    assert attempts.text == ""


def test_a_saver_that_is_killed_is_a_line(node: Node, until: Until) -> None:
    source = (
        "import signal\nclass Deadly:\n    def __reduce__(self):\n"
        "        if 'saver' in open('/proc/self/comm').read():\n            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return (Deadly, ())\n"
        "deadly, folder = Deadly(), gpu_release.run_dir.parent\n"
        "for n in gpu_release.resumable(range(10**9), every=0.01):\n    time.sleep(0.005)\n"
        "    if (folder / 'end').exists():\n        break\n"
    )
    attempts = Attempts(node, source, [])
    until(lambda: _notes(attempts), "it says that it was not saved")
    (attempts.folder / "end").touch()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert _notes(attempts) == [
        "it cannot be saved: the process that saves it was killed, or has crashed; it is tried again"
    ]
    assert attempts.text == ""


@pytest.mark.parametrize("place", ["headers.codec.dump", "restartable_cell.can_be_saved"])
def test_a_loop_that_cannot_be_looked_at_runs_and_is_not_moved(node: Node, until: Until, place: str) -> None:
    source = (
        "from jupyter_gpu_release.node.rank.resuming import headers, restartable_cell\n"
        "def fail(*_arguments, **_options):\n    raise RuntimeError('a defect of ours')\n"
        f"own = {place}\n{place} = fail\nseen = []\n"
        f"for n in gpu_release.resumable(n for n in range(6)):\n    {place} = own\n    pause(n)\n"
        "    seen.append(n)\n"
    )
    attempts = Attempts(node, source, [2])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert attempts.names()["seen"] == list(range(6))
    assert "RuntimeError: a defect of ours" in attempts.refusals[0].reason


def test_settings_that_cannot_be_read_keep_a_cell_in_a_with_where_it_is(node: Node, until: Until) -> None:
    source = (
        "import contextlib\nfrom jupyter_gpu_release.node.rank.resuming import random_state\n"
        "def fail():\n    raise RuntimeError('a defect of ours')\n"
        "own = random_state.capture\nrandom_state.capture = fail\n"
        "with contextlib.nullcontext():\n    for n in gpu_release.resumable(range(4)):\n"
        "        random_state.capture = own\n        pause(n)\n"
    )
    attempts = Attempts(node, source, [1])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert "RuntimeError: a defect of ours" in attempts.refusals[0].reason


def test_files_that_cannot_be_looked_after_do_not_keep_a_cell_from_going_on(node: Node, until: Until) -> None:
    """It has left its statements by then: that is a note, as it is when a cell ends."""
    source = (
        "from jupyter_gpu_release.cell_api.tracked_files import HERE\nHERE.tracked_files = None\nseen = []\n"
        "for n in gpu_release.resumable(range(4)):\n    pause(n)\n    seen.append(n)\n"
    )
    attempts = Attempts(node, source, [1])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert attempts.names()["seen"] == [0, 1, 2, 3]
    first = attempts.runs[0].outcome
    assert any("values were not looked after: TypeError" in note for note in first.notes)


def test_a_limit_on_files_that_forbids_the_save_keeps_the_cell_where_it_is(node: Node, until: Until) -> None:
    source = (
        "import resource\nlarge = bytes(3 << 20)\nresource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))\n"
        "for n in gpu_release.resumable(range(4)):\n    pause(n)\ndel large\n"
    )
    attempts = Attempts(node, source, [1])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert "need a file of 3 MiB, and a file may have 2 MiB here" in attempts.refusals[0].reason


def test_a_gang_of_which_one_rank_fails_to_bring_its_part_goes_on_as_a_whole(node: Node, until: Until) -> None:
    source = (
        "from jupyter_gpu_release import ranks\nfrom jupyter_gpu_release.node.rank.resuming import gang_save\n"
        "def fail(*_arguments):\n    raise RuntimeError('a defect of ours')\n"
        "if ranks.rank:\n    gang_save.offer_part = fail\n"
        "for n in gpu_release.resumable(range(4)):\n    ranks.barrier()\n    pause(f'{ranks.rank}-{n}')\n"
    )
    attempts = Attempts(node, source, ["0-1"], ranks=2, gpu_ids=["0", "1"])
    until(lambda: attempts.stops_left() == 0, "rank 0 pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    (refusal,) = attempts.refusals
    assert refusal.for_now
    assert "rank 1: internal error in " in refusal.reason
    assert refusal.reason.endswith(": RuntimeError: a defect of ours")
