"""Functions, scripts and cells, preempted at ``checkpoint(state)``, and resumed with what ``restore()`` gives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from node_bed import Node
from resuming_bed import Attempts

import jupyter_gpu_release
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.protocol.cell import RESULT
from jupyter_gpu_release.protocol.node import RunSaved

Until = Callable[..., Any]

_TRAINING = """
import random, torch
torch.manual_seed(1)
random.seed(1)

def train(rounds, every=None):
    print("begun", os.getpid(), flush=True)
    model = torch.nn.Linear(3, 1)
    history = []
    first = 0
    if (state := gpu_release.restore()) is not None:
        model.load_state_dict(state["model"])
        history, first = state["history"], state["round"] + 1
    for n in range(first, rounds):
        pause(n)
        x = torch.randn(4, 3)
        with torch.no_grad():
            model.weight += (model(x) * x).mean(0)
        history.append((n, random.random()))
        with open(gpu_release.run_dir / "rounds", "a") as file:
            file.write(f"{n}\\n")
        gpu_release.checkpoint({"model": model.state_dict(), "history": history, "round": n}, every)
    return history, model.weight.detach().numpy().tolist(), random.random()
"""
_ROUNDS = "".join(f"{n}\n" for n in range(6))


def _function(node: Node, source: str, call: str, stops: list[Any]) -> Attempts:
    """A launched function's run."""
    return Attempts(node, f"{source}\n{RESULT} = {call}", stops, function="train", out=[RESULT])


def test_a_function_goes_on_from_its_checkpoint_bit_for_bit(node: Node, until: Until) -> None:
    one = _function(node, _TRAINING, "train(6)", [])
    other = _function(node, _TRAINING, "train(6)", [1, 4])
    assert one.to_end(until).status == other.to_end(until).status == "ok", other.run.outcome
    assert other.names()[RESULT] == one.names()[RESULT]
    assert [n for n, _ in other.names()[RESULT][0]] == list(range(6))
    assert (other.folder / "files" / "rounds").read_text() == _ROUNDS
    saves = [run.outcome.save for run in other.runs[:-1]]
    assert [(save.number, save.place) for save in saves if save] == [(1, "checkpoint 2"), (2, "checkpoint 5")]
    assert [e.data["text"] for e in other.events if e.kind == "note"] == [
        "again from checkpoint 2",
        "again from checkpoint 5",
    ]
    assert not other.run.outcome.notes


_REPLICA = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train(early):
    state = gpu_release.restore() if early else None
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    if not early:
        state = gpu_release.restore()
    replica, first = DistributedDataParallel(torch.nn.Linear(2, 1), gradient_as_bucket_view=True), 0
    if state is not None:
        replica, first = state["models"][0], state["round"] + 1
        kinds.append((type(replica).__name__, getattr(replica, "gradient_as_bucket_view", None), state["plain"] is
                      getattr(replica, "module", replica)))
    for n in range(first, 3):
        pause(n)
        replica(torch.ones(1, 2)).sum().backward()
        plain = getattr(replica, "module", replica)
        gpu_release.checkpoint({"models": [replica], "plain": plain, "round": n})
    return kinds, first

kinds = []
"""


def test_a_replica_in_a_checkpoint_is_wrapped_again_where_there_is_a_process_group(node: Node, until: Until) -> None:
    late = _function(node, _REPLICA, "train(False)", [1])
    assert late.to_end(until).status == "ok", late.run.outcome
    assert late.names()[RESULT] == ([("DistributedDataParallel", True, True)], 2)
    early = _function(node, _REPLICA, "train(True)", [1])
    assert early.to_end(until).status == "ok", early.run.outcome
    assert early.names()[RESULT] == ([("Linear", None, True)], 2)
    said = [str(event.data["text"]) for event in early.events if event.kind == "note"]
    assert "without DistributedDataParallel" in said[-1]


def test_a_cell_begins_again_with_what_was_sent(node: Node, until: Until) -> None:
    source = _TRAINING + (
        "made = []\nmade.append(1)\nos.makedirs('below', exist_ok=True)\nos.chdir('below')\n"
        "with torch.random.fork_rng():\n    result = train(6)\n"
        "where = os.path.basename(os.getcwd())\nafter = torch.rand(1).item()"
    )
    one, other = Attempts(node, source, []), Attempts(node, source, [0, 3])
    assert one.to_end(until).status == other.to_end(until).status == "ok", other.run.outcome
    assert len(other.runs) == 3
    kept = ("made", "result", "where", "after")
    assert {name: other.names()[name] for name in kept} == {name: one.names()[name] for name in kept}
    assert other.names()["made"] == [1]


def test_a_run_that_is_killed_goes_on_from_the_checkpoint_that_was_saved_last(node: Node, until: Until) -> None:
    source = _TRAINING.replace("        pause(n)", "        time.sleep(0.02)\n        pause(n)")
    call = "train(60, every=0.05)"
    one, other = _function(node, source, call, []), _function(node, source, call, [59])
    until(lambda: other.stops_left() == 0, "it is at its end")
    saves = [message.save for message in other.run.messages if isinstance(message, RunSaved)]
    os.kill(int(other.text.split()[1]), signal.SIGKILL)
    assert other.run.wait().status == "died"
    assert saves
    other.begin(saves[-1])
    assert one.run.wait().status == other.run.wait().status == "ok", other.run.outcome
    assert other.names()[RESULT] == one.names()[RESULT]
    assert (other.folder / "files" / "rounds").read_text() == "".join(f"{n}\n" for n in range(60))
    assert len(list(other.folder.glob("save-*.graph"))) <= 3


def test_each_restore_has_the_checkpoints_that_follow_it(node: Node, until: Until) -> None:
    source = (
        "def train(name):\n    state = gpu_release.restore()\n    print(name, state, flush=True)\n"
        "    for n in range(0 if state is None else state[1] + 1, 3):\n"
        "        pause(name + str(n))\n        gpu_release.checkpoint((name, n))\n    return name\n"
        "first = train('a')\nsecond = train('b')\n"
    )
    attempts = Attempts(node, source, ["a1", "b1"])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert len(attempts.runs) == 3
    assert attempts.text == "a None\na ('a', 1)\nb None\na None\nb ('b', 1)\n"


def test_between_statements_what_nobody_has_restored_yet_is_kept(node: Node, until: Until) -> None:
    """It is preempted at a checkpoint, and right after it has begun again, before it asks for its state."""
    source = (
        "attempt = len(list(gpu_release.run_dir.glob('attempt-*')))\n"
        "(gpu_release.run_dir / f'attempt-{attempt}').touch()\n"
        "pause(f'begun-{attempt}')\nstate = gpu_release.restore()\n"
        "if state is None:\n    pause('made')\n    gpu_release.checkpoint(['mine'])\n"
    )
    attempts = Attempts(node, source, ["made", "begun-1"])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert len(attempts.runs) == 3
    assert attempts.names()["state"] == ["mine"]


def test_code_that_catches_everything_steps_aside_all_the_same(node: Node, until: Until) -> None:
    source = (
        "state = gpu_release.restore() or 0\n"
        "for n in range(state, 4):\n    pause(n)\n    try:\n        gpu_release.checkpoint(n + 1)\n"
        "    except:\n        pass\n    print(n, flush=True)\n"
    )
    attempts = Attempts(node, source, [1])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert len(attempts.runs) == 2
    assert attempts.names()["n"] == 3
    assert attempts.run.text() == "2\n3\n"


_STATES = {
    "an open socket": ("import socket\nstate = {'sock': socket.socket()}", "is an open socket"),
    "a generator": ("state = (n for n in range(3))", "is a generator"),
}


@pytest.mark.parametrize("case", _STATES)
def test_a_state_that_cannot_be_saved_is_named(node: Node, until: Until, case: str) -> None:
    before, words = _STATES[case]
    source = f"{before}\nfor n in range(3):\n    pause(n)\n    gpu_release.checkpoint(state)\nprint('end')"
    attempts = Attempts(node, source, [1])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok"
    assert attempts.text == "end\n"
    (refusal,) = attempts.refusals
    assert refusal.reason.startswith("it cannot be moved: `state")
    assert words in refusal.reason


@pytest.mark.parametrize(
    ("source", "note"),
    [
        ("gpu_release.checkpoint(1)\ngpu_release.checkpoint(2)", "without restore()"),
        ("for n in gpu_release.resumable(range(2)):\n    gpu_release.checkpoint(n)", "between its rounds"),
    ],
)
def test_a_checkpoint_that_would_not_help_says_so_once(node: Node, source: str, note: str) -> None:
    run = node.run("import jupyter_gpu_release as gpu_release\n" + source, restartable=True)
    assert run.outcome.status == "ok", run.outcome
    (said,) = [event.data["text"] for event in run.events if event.kind == "note"]
    assert note in said


_ELSEWHERE = """
import jupyter_gpu_release as gpu_release
import os, threading
def look():
    gpu_release.checkpoint(1)
    print(gpu_release.restore(), flush=True)
look()
thread = threading.Thread(target=look)
thread.start()
thread.join()
if (child := os.fork()) == 0:
    look()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("restartable", [True, False])
def test_where_nobody_can_leave_it_nothing_happens(node: Node, restartable: bool) -> None:
    run = node.run(_ELSEWHERE, restartable=restartable)
    assert run.outcome.status == "ok", run.outcome
    assert run.text() == "None\nNone\nNone\n"


def test_in_a_plain_script_nothing_happens() -> None:
    assert jupyter_gpu_release.checkpoint({"epoch": 1}) is None
    assert jupyter_gpu_release.restore() is None
    with pytest.raises(OptionError, match=r"checkpoint\(every=…\) soon"):
        jupyter_gpu_release.checkpoint(1, every="soon")


def test_what_a_cell_had_made_at_a_checkpoint_is_in_its_save_for_the_notebook(node: Node, until: Until) -> None:
    source = "made = [1]\ngpu_release.restore()\npause(1)\ngpu_release.checkpoint('mine')\n"
    attempts = Attempts(node, source, [1])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "preempted"
    assert attempts.names()["made"] == [1]
