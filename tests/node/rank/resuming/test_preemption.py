"""Cells that are preempted at any moment, and resumed in another process: as if nobody had asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from node_bed import Node
from resuming_bed import Attempts, save_of

from jupyter_gpu_release.cell_api.resumable import resumable
from jupyter_gpu_release.errors import OptionError

Until = Callable[..., Any]

_LOOP = """
seen = []
for epoch in gpu_release.resumable(range(8)):
    pause(epoch)
    with open(os.environ["GPU_RUN_DIR"] + "/rounds", "a") as rounds:
        rounds.write(f"{epoch}\\n")
    print("epoch", epoch)
    seen.append((epoch, os.getpid()))
else:
    print("done")
seen[-1][0]
"""


def test_a_loop_goes_on_in_another_process_with_the_round_that_was_next(node: Node, until: Until) -> None:
    attempts = Attempts(node, _LOOP, [2, 5])
    outcome = attempts.to_end(until)
    assert outcome.status == "ok", outcome
    assert len(attempts.runs) == 3
    assert attempts.text == "".join(f"epoch {n}\n" for n in range(8)) + "done\n"
    assert (attempts.folder / "files" / "rounds").read_text() == "".join(f"{n}\n" for n in range(8))
    seen = attempts.names()["seen"]
    assert [epoch for epoch, _pid in seen] == list(range(8))
    assert len({pid for _epoch, pid in seen}) == 3
    assert [event.n for event in attempts.events] == list(range(1, len(attempts.events) + 1))
    saves = [run.outcome.save for run in attempts.runs[:-1]]
    assert [(save.number, save.attempt, save.place) for save in saves if save] == [(1, 0, "epoch 3"), (2, 1, "epoch 6")]
    notes = [event.data["text"] for event in attempts.events if event.kind == "note"]
    assert notes == ["again from epoch 3", "again from epoch 6"]
    assert attempts.events[-1].data["data"]["text/plain"] == "7"


def test_a_save_of_another_version_is_no_place_to_go_on_from(node: Node, until: Until) -> None:
    attempts = Attempts(node, _LOOP, [2])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "preempted"
    attempts.begin(msgspec.structs.replace(save_of(attempts.run.outcome), format=1))
    assert attempts.run.wait().status == "ok"
    assert [epoch for epoch, _pid in attempts.names()["seen"]] == list(range(8))
    notes = [event.data["text"] for event in attempts.events if event.kind == "note"]
    assert notes == ["again from the beginning", "what it had saved is of another version of jupyter_gpu_release"]


def test_a_cell_that_is_asked_again_while_it_is_being_started_keeps_its_place(node: Node, until: Until) -> None:
    attempts = Attempts(node, _LOOP, [2])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "preempted"
    attempts.begin(save_of(attempts.run.outcome))
    attempts.ask()
    outcome = attempts.run.wait()
    assert outcome.status == "preempted"
    assert outcome.save is not None
    assert outcome.save.place == "epoch 3"
    attempts.begin(save_of(outcome))
    assert attempts.run.wait().status == "ok"
    assert attempts.text == "".join(f"epoch {n}\n" for n in range(8)) + "done\n"


def test_open_figures_and_folders_of_modules_go_on_with_the_cell(node: Node, until: Until) -> None:
    source = (
        "import sys\nfrom pathlib import Path\nimport matplotlib.pyplot as plt\n"
        "Path('mine').mkdir(exist_ok=True); Path('mine/of_the_cell.py').write_text('x = 5')\n"
        "sys.path.insert(0, os.path.abspath('mine'))\nimport of_the_cell\nfigure = plt.figure(7)\nplt.figure(9)\n"
        "for n in gpu_release.resumable(range(4)):\n    pause(n)\n    plt.plot([n, n + 1])\n"
        "found = (len(plt.gca().lines), plt.get_fignums(), plt.gcf().number, plt.figure(7) is figure, of_the_cell.x,\n"
        "         sys.path[0] == os.path.abspath('mine'))\nplt.close('all')\n"
    )
    attempts = Attempts(node, source, [1])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome.error
    assert attempts.names()["found"] == (4, [7, 9], 9, True, 5, True)


def test_a_graph_of_torch_that_the_next_round_goes_back_through_keeps_the_cell_where_it_is(
    node: Node, until: Until
) -> None:
    source = (
        "import torch\nw, total = torch.ones(1, requires_grad=True), 0\n"
        "for n in gpu_release.resumable(range(4)):\n    pause(n)\n    last = w * n\n    total = total + last\n"
        "total.backward()\nfound = w.grad.item()\nprint(last.item())\n"
    )
    attempts = Attempts(node, source, [2])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok"
    assert attempts.names()["found"] == 6.0
    assert [(refusal.for_now, "`total` has a graph" in refusal.reason) for refusal in attempts.refusals] == [
        (True, True)
    ]
    detached = source.replace("total + last", "total + last.item()").replace("total.backward()", "last.backward()")
    once = Attempts(node, detached.replace("last.backward()", "(w * total).sum().backward()"), [2])
    assert once.to_end(until).status == "ok", once.run.outcome
    assert len(once.runs) == 2


#: what trains, in numpy and torch, with every kind of random numbers
_TRAINING = """
import random
import numpy as np
import torch

torch.set_num_threads(1)
random.seed({seed}); np.random.seed({seed}); torch.manual_seed({seed})
own = np.random.default_rng({seed})
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3))
parameters = list(model.parameters())
momenta = [torch.zeros_like(p) for p in parameters]
average = model[0].weight
history = []
for epoch in gpu_release.resumable(range(10)):
    pause(epoch)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        for p, m, g in zip(parameters, momenta, torch.autograd.grad(loss, parameters)):
            with torch.no_grad():
                p -= 0.1 * m.mul_(0.9).add_(g)
    history.append((epoch, loss.item(), random.random(), np.random.rand(), own.normal()))
    with open(gpu_release.run_dir / "rounds", "a") as rounds:
        rounds.write(f"{{epoch}}\\n")
weights = torch.cat([p.detach().flatten() for p in parameters + momenta]).numpy().copy()
is_one = average is model[0].weight is parameters[0]
rest = (random.random(), np.random.rand(), torch.rand(3).tolist())
"""


def test_training_that_steps_aside_at_random_rounds_is_bit_identical_to_one_that_does_not(
    node: Node, until: Until
) -> None:
    for seed in range(3):
        source = _TRAINING.format(seed=seed)
        undisturbed = Attempts(node, source, [])
        assert undisturbed.to_end(until).status == "ok", undisturbed.run.outcome.error
        stops = sorted(random.Random(seed).sample(range(10), 3))
        attempts = Attempts(node, source, stops)
        assert attempts.to_end(until).status == "ok", attempts.run.outcome
        assert len(attempts.runs) == 4
        one, other = undisturbed.names(), attempts.names()
        assert other["weights"].tobytes() == one["weights"].tobytes()
        assert other["history"] == one["history"]
        assert other["rest"] == one["rest"]
        assert other["is_one"]
        assert (attempts.folder / "files" / "rounds").read_text() == "".join(f"{n}\n" for n in range(10))


def test_what_the_loop_goes_over_stays_one_object_with_the_names(node: Node, until: Until) -> None:
    source = (
        "items = [[1], [2], [3], [4]]\n"
        "for item in gpu_release.resumable(items):\n"
        "    pause(item[0])\n"
        "    item.append(item is items[item[0] - 1])\n"
        "    if item[0] == 2:\n        items.append([5])\n"
    )
    attempts = Attempts(node, source, [1, 3])
    assert attempts.to_end(until).status == "ok"
    assert attempts.names()["items"] == [[n, True] for n in range(1, 6)]


def test_with_and_if_are_entered_again_and_what_they_set_ends_with_them(node: Node, until: Until) -> None:
    source = (
        "import contextlib, torch\nentered, asked = [], []\n"
        "def is_asked():\n    asked.append(1)\n    return True\n"
        "with torch.no_grad(), open(gpu_release.run_dir / 'log', 'a') as log, torch.random.fork_rng():\n"
        "    entered.append(1)\n    before = torch.rand(1).item()\n"
        "    if is_asked():\n"
        "        for n in gpu_release.resumable(range(4)):\n"
        "            pause(n)\n            log.write(f'{n}\\n')\n            entered.append(torch.is_grad_enabled())\n"
        "        inside = n\n"
        "    else:\n        inside = None\n"
        "    after = torch.is_grad_enabled()\n"
        "grad, number = torch.is_grad_enabled(), torch.rand(1).item()\n"
    )
    source = "import torch\ntorch.manual_seed(5)\n" + source
    one, other = Attempts(node, source, []), Attempts(node, source, [0, 2])
    assert one.to_end(until).status == other.to_end(until).status == "ok", other.run.outcome
    assert len(other.runs) == 3
    names = other.names()
    kept = ("entered", "asked", "before", "inside", "after", "grad", "number")
    assert {name: names[name] for name in kept} == {name: one.names()[name] for name in kept}
    assert (names["grad"], names["after"], names["asked"]) == (True, False, [1])
    assert (other.folder / "files" / "log").read_text() == "0\n1\n2\n3\n"


def test_between_two_statements_a_cell_steps_aside_too(node: Node, until: Until) -> None:
    source = (
        "import os\nos.environ['MINE'] = 'set'\nos.makedirs('below', exist_ok=True); os.chdir('below')\n"
        "x = [1]\ny = x\npause('here')\nx.append(os.environ['MINE'])\nz = (x is y, os.path.basename(os.getcwd()))\n"
        "def f():\n    return later\nlater = 5\nz, f()"
    )
    attempts = Attempts(node, source, ["here"])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert len(attempts.runs) == 2
    assert attempts.names()["z"] == (True, "below")
    assert attempts.names()["y"] == [1, "set"]
    shown = [event.data["data"]["text/plain"] for event in attempts.events if event.kind == "display"]
    assert shown == ["((True, 'below'), 5)"]


def test_errors_after_resuming_say_the_line_of_the_cell_and_show_no_frame_of_ours(node: Node, until: Until) -> None:
    source = (
        "def items():\n    yield from range(3)\n    raise ValueError('mine')\n"
        "for n in gpu_release.resumable(items()):\n    pause(n)\n"
    )
    one, other = Attempts(node, source, [], count=7), Attempts(node, source, [1], count=7)
    assert one.to_end(until).status == other.to_end(until).status == "error"
    error = other.run.outcome.error
    assert error is not None
    assert error.ename == "ValueError"
    plain = one.run.outcome.error
    assert plain is not None
    assert "resuming" not in "".join(error.traceback)
    assert len(error.traceback) == len(plain.traceback)


_IN_LIBRARIES = """
import colorsys, textwrap, wave
import xml.dom as dom
colorsys.RATE = 3
dom.own = shared = [1]
textwrap.TextWrapper.extra = shared
def configure():
    wave.MODE = "a"
    wave.OTHER = "b"
configure()
for n in gpu_release.resumable(range(3)):
    pause(n)
    shared.append(n)
found = [colorsys.RATE, wave.MODE, wave.OTHER, dom.own is shared is textwrap.TextWrapper.extra]
"""


def test_what_a_cell_has_set_in_libraries_is_there_when_it_goes_on(node: Node, until: Until) -> None:
    attempts = Attempts(node, _IN_LIBRARIES, [1])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert attempts.names()["found"] == [3, "a", "b", True]
    assert attempts.names()["shared"] == [1, 0, 1, 2]
    assert not any(":" in name for name in attempts.names())


def test_what_a_cell_has_set_in_a_library_and_cannot_be_saved_is_named(node: Node, until: Until) -> None:
    source = "import socket, wave\nwave.hook = socket.socket()\nfor n in gpu_release.resumable([1, 2]):\n    pause(n)"
    attempts = Attempts(node, source, [1])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok"
    assert "cannot be moved: `wave.hook` is an open socket" in attempts.refusals[0].reason


_IMMOVABLE = {
    "import socket\nsock = socket.socket()": "`sock` is an open socket",
    "import sqlite3\nbox = [sqlite3.connect(':memory:')]": "is an open database",
    "import subprocess\nprogram = subprocess.Popen(['sleep', '60'])": "`program` is a process",
    "import subprocess\nsubprocess.Popen(['sleep', '60'])\nsubprocess = subprocess": "that it has started still runs",
    "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)": "`pool` is a pool of workers",
    "numbers = (n for n in range(3))": "`numbers` is a generator",
    "import torch\nloader = torch.utils.data.DataLoader([1], num_workers=1, persistent_workers=True)\nlist(loader)\n"
    "loader = loader": "persistent_workers=True",
    "import threading, time\nthread = threading.Thread(target=lambda: time.sleep(2))\nthread.start()": "thread ",
    "import asyncio\ntask = asyncio.ensure_future(asyncio.sleep(2))": "asyncio task",
    "file = open('/dev/null')": "`file` is an open file",
    "import csv\nwriter = csv.writer(open('rows.csv', 'w'))": "rows.csv is open for writing",
    "import logging\nlog = logging.getLogger('l')\nlog.addHandler(logging.FileHandler('l'))\nlog = log": "l is open",
}


@pytest.mark.parametrize("made", _IMMOVABLE)
def test_a_cell_that_cannot_be_moved_says_why_and_goes_on_to_its_end(node: Node, until: Until, made: str) -> None:
    used = made.rpartition("\n")[2].partition(" = ")[0] if "thread.start" not in made else "thread"
    source = f"{made}\nfor n in gpu_release.resumable(range(3)):\n    pause(n)\n    print(n)\nprint({used} is None)"
    attempts = Attempts(node, source, [1])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok"
    assert attempts.text == "0\n1\n2\nFalse\n"
    assert len(attempts.refusals) == 1
    assert "cannot be moved: " in attempts.refusals[0].reason
    assert _IMMOVABLE[made] in attempts.refusals[0].reason
    assert not attempts.ask()


def test_a_cell_that_has_installed_packages_is_not_moved(node: Node, until: Until) -> None:
    installed = (
        "site = next(path for path in sys.path if 'jgr-packages-' in path)\nos.mkdir(site + '/extra-1.0.dist-info')"
    )
    source = f"import os, sys\n{installed}\nfor n in gpu_release.resumable(range(2)):\n    pause(n)"
    attempts = Attempts(node, source, [1], installs=True)
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok"
    assert "cannot be moved: it has installed extra-1.0" in attempts.refusals[0].reason


#: a class that opens a file when it is entered, and one as h5py's: its mode is "r+" whether it began with "w" or "a"
_WRITERS = """
class Log:
    def __enter__(self):
        self.log = open("own_log", "w")
        return self
    def __exit__(self, *error):
        self.log.close()

class Box(dict):
    def __init__(self, path, mode):
        self.path, self.mode = path, "r+"
        if mode == "w":
            open(path, "w").close()
        self.update(eval(open(path, "a+").read() or "{}"))
    def __enter__(self):
        return self
    def __exit__(self, *error):
        with open(self.path, "w") as file:
            file.write(repr(dict(self)))
"""
#: a file that `with` opens, a round, and why it keeps the cell where it is (empty: it does not)
_OPENED = [
    ("open('log', 'w')", "file.write(f'{n} ')", "`file` is open for writing, and `with` would begin it anew"),
    ("gzip.open('log.gz', 'wt')", "file.write(f'{n} ')", "`file` is open for writing, and `with` would begin it anew"),
    ("zipfile.ZipFile('log.zip', 'w')", "n", "`file` is open for writing, and `with` would begin it anew"),
    ("open('log', 'a')", "file.write(f'{n} ')", ""),
    ("open('lines')", "seen.append(file.readline())", "`file` is being read, and `with` would begin it anew"),
    ("open('lines')", "seen.append(n)", ""),
    (
        "tempfile.TemporaryDirectory()",
        "open(f'{file}/{n}', 'w').close()",
        "`with tempfile.TemporaryDirectory()` would begin",
    ),
    ("sqlite3.connect('rows.db')", "file.execute('create table if not exists t (x)')", "`file` is an open database"),
    ("Log()", "file.log.write('x')", "own_log is open for writing: close it before the loop, or open it in each round"),
    ("Box('box', 'w')", "file[n] = n", "`with Box('box', 'w')` would begin anew what it holds"),
    ("Box('box', 'a')", "file[n] = n", ""),
]


@pytest.mark.parametrize(("opened", "body", "reason"), _OPENED)
def test_a_file_that_with_would_begin_anew_keeps_the_cell_where_it_is(
    node: Node, until: Until, opened: str, body: str, reason: str
) -> None:
    """Else what the earlier rounds wrote is gone, and nobody knows."""
    head = "seen.append(file.readline())" if "lines" in opened else "file"
    source = (
        "import gzip, sqlite3, tempfile, zipfile\nseen = []\n"
        "with open('lines', 'w') as made:\n    made.write('a\\n' * 9)\n"
        + _WRITERS
        + f"with {opened} as file:\n    {head}\n"
        f"    for n in gpu_release.resumable(range(4)):\n        {body}\n        pause(n)\n"
    )
    attempts = Attempts(node, source, [2])
    if not reason:
        assert attempts.to_end(until).status == "ok", attempts.run.outcome
        return
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert reason in attempts.refusals[0].reason


def test_what_cannot_be_pickled_and_is_never_read_again_keeps_nobody_from_stepping_aside(
    node: Node, until: Until
) -> None:
    source = (
        "from tqdm import tqdm\ntotal = 0\n"
        "for n in gpu_release.resumable(range(4)):\n    pause(n)\n"
        "    for bar in [tqdm(range(3))]:\n        for x in bar:\n            total += x\n"
        "    with open(gpu_release.run_dir / 'f', 'a') as file:\n        file.write('.')\n"
    )
    attempts = Attempts(node, source, [1])
    assert attempts.to_end(until).status == "ok", attempts.run.outcome
    assert attempts.names()["total"] == 12


def test_resumable_in_a_function_is_a_plain_loop_and_says_so_once(node: Node) -> None:
    source = (
        "import jupyter_gpu_release as gpu_release\n"
        "def f():\n    return [n for n in gpu_release.resumable(range(3))]\n"
        "for n in range(2):\n    f()\nfor n in gpu_release.resumable(f()):\n    pass\n"
    )
    run = node.run(source, restartable=True)
    assert run.outcome.status == "ok"
    notes = [event.data["text"] for event in run.events if event.kind == "note"]
    assert len(notes) == 1
    assert "plain loop" in notes[0]


def test_a_cell_that_may_not_step_aside_is_not_asked(node: Node, until: Until) -> None:
    attempts = Attempts(node, "for n in gpu_release.resumable(range(3)):\n    print(n)\n", [], restartable=False)
    assert not attempts.ask()
    assert attempts.to_end(until).status == "ok"
    assert attempts.text == "0\n1\n2\n"


@pytest.mark.parametrize("every", ["-1", "soon", -1, float("nan"), True])
def test_a_time_between_saves_that_is_none_is_refused(every: Any) -> None:
    with pytest.raises(OptionError, match="every"):
        resumable(range(3), every=every)


def test_outside_of_a_restartable_cell_it_is_the_iterable_itself() -> None:
    items = iter([1])
    assert resumable(items) is items
    assert resumable(items, every="10m") is items


def test_a_loop_over_what_is_gone_once_it_was_read_stays(node: Node, until: Until) -> None:
    source = "numbers = (n for n in range(3))\nfor n in gpu_release.resumable(numbers):\n    pause(n)\n    print(n)\n"
    attempts = Attempts(node, source, [1])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok"
    assert attempts.text == "0\n1\n2\n"
    (refusal,) = attempts.refusals
    assert "`numbers`" in refusal.reason


@pytest.mark.parametrize(
    ("before", "header", "reason"),
    [
        (
            "import tempfile\nwith tempfile.TemporaryDirectory() as gone:\n    os.chdir(gone)\n",
            "range(3)",
            "folder is gone",
        ),
        ("again = [gpu_release.resumable]\n", "again[0](n for n in range(3))", "by its name"),
    ],
)
def test_a_cell_that_could_not_find_its_place_again_goes_on_to_its_end(
    node: Node, until: Until, before: str, header: str, reason: str
) -> None:
    header = header if "again" in header else f"gpu_release.resumable({header})"
    source = (
        "import contextlib\n" + before + "with contextlib.nullcontext():\n"
        f"    for n in {header}:\n        pause(n)\n        print(n)\n"
    )
    attempts = Attempts(node, source, [1])
    until(lambda: attempts.stops_left() == 0, "the cell pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert attempts.text == "0\n1\n2\n"
    assert reason in attempts.refusals[0].reason


def test_nothing_is_imported_for_it_while_its_gpu_is_held(node: Node) -> None:
    loaded = "import sys\nprint(*sorted(name for name in sys.modules if name.startswith('jupyter_gpu_release')))"
    plain, restartable = (set(node.run(loaded, **options).text().split()) for options in ({}, {"restartable": True}))
    assert plain
    assert restartable == plain
