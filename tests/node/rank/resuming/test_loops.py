"""Loops over every kind of iterable: resumed, they go on as an undisturbed loop would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from node_bed import Node
from resuming_bed import Attempts, loop_over, resumed_as_plain

Until = Callable[..., Any]

_LOADER = "import torch\ntorch.manual_seed(1)\n"
#: what stands before the loop, and its header
_HEADERS = {
    "enumerate of it": ("", "enumerate(resumable('abcdef'), 3)"),
    "it of zip": ("", "resumable(zip(range(6), 'abcdefg'))"),
    "generator": ("def numbers(n):\n    for x in range(n):\n        yield x", "resumable(numbers(6))"),
    "random numbers": ("import random\nrandom.seed(3)", "resumable(random.random() for _ in range(6))"),
    "map": ("", "resumable(map(abs, range(6)))"),
    "itertools": ("import itertools", "resumable(itertools.product(range(2), range(3)))"),
    "it of tqdm": ("from tqdm import tqdm", "resumable(tqdm(range(6)))"),
    "tqdm of enumerate": ("from tqdm import tqdm", "tqdm(enumerate(resumable(range(6))), total=6)"),
    "a bar of a list": (
        "from tqdm import tqdm\nitems = [[n] for n in range(6)]\nbar = tqdm(resumable(items))",
        "resumable(bar)",
    ),
    "a loader": (
        _LOADER + "loader = torch.utils.data.DataLoader(range(12), batch_size=2, shuffle=True)",
        "resumable(loader)",
    ),
    "a loader that draws each time": (
        "import torch\ng = torch.Generator().manual_seed(1)\ndata = range(80)\n"
        "sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=90, generator=g)\n"
        "loader = torch.utils.data.DataLoader(data, batch_size=15, sampler=sampler)",
        "resumable(loader)",
    ),
    "numbers of a numpy generator": (
        "import numpy as np\nrng = np.random.default_rng(4)",
        "resumable(rng.normal() for _ in range(6))",
    ),
    "a generator that draws": (
        "import random\nr = random.Random(1)\ndef draw():\n    for _ in range(6):\n        yield r.random()",
        "resumable(draw())",
    ),
    "zip of bars": (
        "from tqdm import tqdm\nfrom tqdm.auto import tqdm as auto\n"
        "items = [[n] for n in range(6)]\nbar = auto(range(6))",
        "zip(tqdm(resumable(items)), bar)",
    ),
    "numbers of random.Random": ("import random\nr = random.Random(4)", "resumable(r.random() for _ in range(6))"),
}
_AFTER = """
aliases = [item is each for each in globals().get("items", ())]
seen.append(aliases)
for name in ("g", "rng", "r", "loader", "items"):
    thing = globals().get(name)
    if name == "g" and thing is not None:
        seen.append(torch.rand(2, generator=thing).tolist())
    elif name == "rng" and thing is not None:
        seen.append(thing.normal())
    elif name == "r" and thing is not None:
        seen.append(thing.random())
    elif thing is not None:
        seen.append(repr(list(thing)))
"""


@pytest.mark.parametrize("case", _HEADERS)
def test_a_loop_goes_on_with_the_item_that_was_next(node: Node, until: Until, case: str) -> None:
    before, header = _HEADERS[case]
    before = f"from jupyter_gpu_release import resumable\n{before}"
    resumed_as_plain(node, loop_over(header, before, _AFTER), until)


_BAR = """
from tqdm import tqdm
import sys
bar = tqdm(range(100), desc="epoch", file=sys.stdout, mininterval=0, miniters=1, ncols=60)
for n in gpu_release.resumable(bar):
    bar.set_postfix(n=n)
    pause(n)
    if n == 60:
        continue
    if n == 70:
        break
else:
    n = None
done = bar.n
again = sum(1 for _ in bar)
"""


def test_a_bar_goes_on_at_its_number_and_ends_where_the_loop_does(node: Node, until: Until) -> None:
    attempts = Attempts(node, _BAR, [36, 60])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert {name: attempts.names()[name] for name in ("n", "done", "again")} == {"n": 70, "done": 70, "again": 100}
    first, second, third = (run.text() for run in attempts.runs)
    assert " 36/100" in first
    assert " 37/100" in second
    assert " 36/100" not in second
    assert " 61/100" in third
    assert "n=61" in third


def test_a_list_that_grows_below_a_bar_is_the_cells_own(node: Node, until: Until) -> None:
    source = (
        "import sys\nfrom tqdm import tqdm\npool = list(range(30))\nmine, seen = pool, []\n"
        "for i, item in enumerate(tqdm(gpu_release.resumable(pool), file=sys.stdout)):\n    pause(i)\n"
        "    seen.append(item)\n    if item == 25:\n        pool.append(99)\n"
    )
    attempts = Attempts(node, source, [16])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert attempts.names()["seen"] == [*range(30), 99]
    names = attempts.names()
    assert names["mine"] is names["pool"]
    assert "17/30" in attempts.run.text()
    assert " 0/30" not in attempts.run.text()


def test_a_large_array_that_the_header_reads_and_the_loop_changes_keeps_the_cell_where_it_is(
    node: Node, until: Until
) -> None:
    source = (
        "import numpy as np\nx = np.zeros(1 << 18)\ndef rows():\n    for n in range(3):\n        yield x[n]\n"
        "for row in gpu_release.resumable(rows()):\n    x += 1\n    pause(int(x[0]))\n"
    )
    attempts = Attempts(node, source, [2])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert "too large to be kept" in attempts.refusals[0].reason


def test_a_file_that_with_opens_again_goes_on_with_its_next_line(node: Node, until: Until) -> None:
    source = (
        "with open('lines.txt', 'w') as made:\n    made.write('a\\nb\\nc\\nd\\n')\nseen = []\n"
        "with open('lines.txt') as file:\n    for n, line in enumerate(gpu_release.resumable(file)):\n"
        "        pause(n)\n        seen.append(line.strip())\n"
    )
    attempts = Attempts(node, source, [0, 2])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert attempts.names()["seen"] == ["a", "b", "c", "d"]
