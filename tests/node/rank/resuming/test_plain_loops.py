"""Loops of a restartable cell that nobody has marked: they are left and entered again like those that are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from node_bed import Node
from resuming_bed import Attempts, loop_over, played_plain, resumed_as_plain
from soak import thorough

Until = Callable[..., Any]

_LOADER = "import torch\ntorch.manual_seed(1)\n"
_SET = "loader = torch.utils.data.DataLoader(range(12), batch_size=2, shuffle=True"
#: what stands before the loop, and its header
_HEADERS = {
    "range": ("", "range(6)"),
    "list": ("items = [[n] for n in range(6)]", "items"),
    "tuple": ("", "('a', 'b', 'c', 'd', 'e', 'f')"),
    "dict": ("d = dict.fromkeys(range(6))", "d"),
    "items of a dict": ("d = dict.fromkeys(range(6), 1)", "d.items()"),
    "set": ("d = {1, 4, 9, 16, 25, 36}", "d"),
    "array": ("import numpy as np\nx = np.arange(12).reshape(6, 2)", "x"),
    "tensor": ("import torch\nx = torch.arange(6.0)", "x"),
    "enumerate": ("items = [[n] for n in range(6)]", "enumerate(items, 3)"),
    "zip": ("", "zip(range(6), 'abcdefg')"),
    "reversed": ("", "reversed(range(6))"),
    "tqdm": ("from tqdm import tqdm\nitems = [[n] for n in range(6)]", "tqdm(items)"),
    "trange": ("from tqdm.auto import trange", "trange(6)"),
    "enumerate of tqdm": ("from tqdm import tqdm", "enumerate(tqdm(range(6)))"),
    "tqdm of a tensor": ("from tqdm import tqdm\nimport torch\nx = torch.arange(6.0)", "tqdm(x)"),
    "loader": (_LOADER + _SET + ")", "loader"),
    "loader with workers": (_LOADER + _SET + ", num_workers=2)", "enumerate(loader)"),
    "bar of a loader": (_LOADER + "from tqdm import tqdm\n" + _SET + ")", "enumerate(tqdm(loader))"),
    "loader with a generator": (
        "import torch\ng = torch.Generator().manual_seed(1)\n" + _SET + ", generator=g)",
        "loader",
    ),
    "loader made there": (_LOADER, "torch.utils.data.DataLoader(range(12), batch_size=2, shuffle=True)"),
    "rows of a frame": (
        "import pandas as pd\ndf = pd.DataFrame({'a': range(6), 'b': list('abcdef')})",
        "df.iterrows()",
    ),
    "tuples of a frame": ("import pandas as pd\ndf = pd.DataFrame({'a': range(6)})", "df.itertuples()"),
    "series": ("import pandas as pd\ns = pd.Series(range(6))", "s"),
    "an object of the user's own": (
        "class Stream:\n    n = 0\n    def __iter__(self):\n        return self\n"
        "    def __next__(self):\n        self.n += 1\n        if self.n > 6:\n            raise StopIteration\n"
        "        return self.n\nstream = Stream()",
        "stream",
    ),
}
_AFTER = """
aliases = [item is each for each in globals().get("items", ())]
seen.append((aliases, globals().get("stream") and stream.n))
if "g" in globals():
    seen.append(torch.rand(2, generator=g).tolist())
if "loader" in globals():
    seen.append(repr(list(loader)))
"""


#: their mechanism is that of another case
_LATER = ("loader with workers", "tqdm of a tensor", "trange", "items of a dict", "tuples of a frame", "tensor")


@pytest.mark.parametrize("case", [*(each for each in _HEADERS if each not in _LATER), *thorough(*_LATER)])
def test_a_loop_goes_on_with_the_item_that_was_next(node: Node, until: Until, case: str) -> None:
    before, header = _HEADERS[case]
    attempts = resumed_as_plain(node, loop_over(header, before, _AFTER), until)
    notes = [event.data["text"] for event in attempts.events if event.kind == "note"]
    assert [note.partition(" from ")[0] for note in notes] == ["again", "again"]


_ELSEWHERE = {
    "while": "n = 0\nwhile n < 6:\n    n += 1\n    turn(n)\nelse:\n    seen.append('else')",
    "while with a walrus": "left = [1, 2, 3, 4, 5, 6]\nwhile (n := left.pop(0)) < 6:\n    turn(n)",
    "while that ends by break": "n = 0\nwhile True:\n    n += 1\n    turn(n)\n    if n == 6:\n        break\n"
    "else:\n    seen.append('never')",
    "for that ends by break": "for n in range(99):\n    turn(n)\n    if n == 6:\n        break\nelse:\n    n = None",
    "try": "try:\n    seen.append('begun')\n    for n in range(7):\n        turn(n)\nexcept BaseException:\n"
    "    seen.append('caught')\nelse:\n    seen.append('else')\nfinally:\n    seen.append('finally')",
    "try that catches": "try:\n    for n in range(9):\n        turn(n)\n        1 / (6 - n)\n"
    "except ZeroDivisionError:\n"
    "    seen.append('caught')\nfinally:\n    seen.append('finally')\n    print('over')",
    "while in try in with": "import contextlib\nn = 0\nwith contextlib.nullcontext():\n    try:\n        while n < 6:\n"
    "            n += 1\n            turn(n)\n    finally:\n        seen.append(n)\n    seen.append('with')",
    "nest": "for n in range(7):\n    for batch in range(3):\n        seen.append(batch)\n    turn(n)",
    "two in one": "if seen == []:\n    for n in range(4):\n        turn(n)\n    m = 3\n"
    "    while m < 7:\n        m += 1\n        turn(m)",
}


@pytest.mark.parametrize("case", _ELSEWHERE)
def test_loops_go_on_wherever_they_stand(node: Node, until: Until, case: str) -> None:
    source = (
        "import random\nrandom.seed(7)\nseen = []\n"
        "def turn(n):\n    pause(n)\n    seen.append((n, random.random()))\n    print(n)\n"
        + _ELSEWHERE[case]
        + "\nlast = n"
    )
    attempts = Attempts(node, source, [2, 5])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert len(attempts.runs) == 3
    plain, printed = played_plain(source)
    assert attempts.names()["seen"] == plain["seen"]
    assert attempts.text == printed


_PLAIN = {
    "for x in (n for n in range(3)):\n    turn()": "a generator",
    "def numbers():\n    yield from range(3)\nfor x in numbers():\n    turn()": "a generator",
    "for x in map(abs, range(3)):\n    turn()": "`map`",
    "open('three', 'w').write('a\\nb\\nc')\n"
    "with open('three') as file:\n    for line in file:\n        turn()": "an open file",
    "import queue\nq = queue.Queue()\nfor x in (1, 2, 3, 0):\n    q.put(x)\n"
    "while q.get():\n    turn()": "its test waits: `q.get()`",
    "async def numbers():\n    for x in range(3):\n        yield x\n"
    "async for x in numbers():\n    turn()": "`async for`",
}


@pytest.mark.parametrize("loop", _PLAIN)
def test_a_loop_that_cannot_be_left_is_named_and_the_cell_is_left_behind_it(
    node: Node, until: Until, loop: str
) -> None:
    source = f"n = 0\ndef turn():\n    global n\n    n += 1\n    pause(n)\n{loop}\ndel turn, x, line\nlast = n\n"
    source = source.replace("del turn, x, line", "q = numbers = file = line = None")
    attempts = Attempts(node, source, [2])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert len(attempts.runs) == 2
    assert attempts.names()["n"] == 3
    notes = [event.data["text"] for event in attempts.runs[0].events if event.kind == "note"]
    assert [note.partition(": ")[2] for note in notes] == [_PLAIN[loop]]
    assert all(note.startswith("it can be preempted only after the loop in line ") for note in notes)


def test_what_the_notebook_has_named_is_not_named_again(node: Node) -> None:
    run = node.run("for x in (n for n in range(3)):\n    pass\n", restartable=True, line_offset=0, plain_loops=[1])
    assert run.outcome.status == "ok"
    assert not [event for event in run.events if event.kind == "note"]


def test_what_a_round_changes_in_what_it_goes_over_is_as_in_a_plain_cell(node: Node, until: Until) -> None:
    source = (
        "pool, seen, d = list(range(4)), [], dict.fromkeys(range(9))\n"
        "for n in pool:\n    pause(n)\n    seen.append(n)\n    if n == 2:\n        pool += [7, 8]\n"
        "for k in d:\n    pause(k + 10)\n    if k == 5:\n        d['more'] = 1\n"
    )
    attempts = Attempts(node, source, [1, 7, 13])
    assert attempts.to_end(until).status == "error"
    assert len(attempts.runs) == 4
    assert attempts.names()["seen"] == [0, 1, 2, 3, 7, 8]
    error = attempts.run.outcome.error
    assert error is not None
    assert error.evalue == "dictionary changed size during iteration"
    assert "resuming" not in "".join(error.traceback)


def test_a_round_that_takes_longer_than_the_queue_gives_is_said_early(node: Node, until: Until) -> None:
    source = (
        "folder = gpu_release.run_dir.parent\nfor epoch in range(2):\n"
        "    while not (folder / 'end').exists():\n        time.sleep(0.01)\n"
    )
    attempts = Attempts(node, source, [], preempt_grace_s=0.1)
    until(lambda: any(event.kind == "note" for event in attempts.events), "it says so")
    (attempts.folder / "end").touch()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    (note,) = [event.data["text"] for event in attempts.events if event.kind == "note"]
    assert note.startswith("a round of the loop in line ")


def test_checkpoints_in_a_loop_that_nobody_has_marked_are_taken(node: Node, until: Until) -> None:
    source = (
        "def train(n):\n    first = gpu_release.restore() or 0\n    for epoch in range(first, 4):\n"
        "        gpu_release.checkpoint(epoch)\n        pause(f'{n}-{epoch}')\n    return n, first\n"
        "done = []\nfor n in range(3):\n    done.append(train(n))\n"
    )
    attempts = Attempts(node, source, ["1-1"])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert attempts.names()["done"] == [(0, 0), (1, 2), (2, 0)]
