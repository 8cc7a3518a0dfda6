"""Faults that a cluster survives: each really kills, and afterwards nothing is held."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_bed import Cluster
from kernel_bed import Notebook, Shown

Open = Callable[[Cluster], Notebook]
Until = Callable[[Callable[[], object], str], None]

pytestmark = pytest.mark.timeout(900)  # a cluster that is killed and goes on: minutes on a machine that is busy
GPU = "%%gpu_train --gpus 2\n"
KEEPS = "%%gpu_train --gpus 2 --keep 10m\n"
#: tells its process ids, leaves a grandchild of its own session behind, and goes on until the file is there
_LONG = (
    GPU + "import os, pathlib, subprocess, time\n"
    "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    "print('pids', os.getpid(), child.pid, flush=True)\n"
    "kept = 'yes'\n"
    "n = 0\n"
    "while not pathlib.Path('stop').exists():\n"
    "    n += 1\n"
    "    print('tick', n, flush=True)\n"
    "    time.sleep(0.05)\n"
)


def _ticks(shown: Shown) -> list[int]:
    return [int(line.split()[1]) for line in shown.lines() if line.startswith("tick")]


def _pids(shown: Shown) -> list[int]:
    lines = [line for line in shown.lines() if line.startswith("pids")]
    return [int(word) for word in lines[0].split()[1:]] if lines else []


def _begin(notebook: Notebook) -> tuple[str, list[int]]:
    cell = notebook.begin(_LONG)
    shown = notebook.until(lambda shown: len(_ticks(shown)) > 3)
    return cell, _pids(shown)


@pytest.mark.slow("one kill of each process")
@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("import os\nos._exit(7)", "exit code 7"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_the_cells_process_dies(shared_cluster: Cluster, open_notebook: Open, death: str, words: str) -> None:
    notebook = open_notebook(shared_cluster)
    notebook.ok("precious = [1, 2]")
    shown = notebook.run(KEEPS + "print(len(precious), flush=True)\n" + death)  # after such an end it does not
    assert shown.status == "error"
    assert words in shown.traceback
    assert "2\n" in shown.text()
    assert notebook.value("precious") == [1, 2]
    shared_cluster.assert_nothing_is_held()


@pytest.mark.slow("it waits for the grace")
def test_kernels_are_killed(shared_cluster: Cluster, open_notebook: Open, until: Until) -> None:
    """One whose cell runs, one whose cell waits for a name of the notebook, one that keeps a GPU."""
    runs, asks, keeps = (open_notebook(shared_cluster) for _ in range(3))
    keeps.ok("%%gpu_train --keep 10m\n1")
    asks.ok(
        "%config GpuRelease.implicit_send_max = '1MiB'\nimport numpy as np, time\n"
        "class Slow:\n    def __reduce__(self):\n        open('asked', 'w').close()\n        time.sleep(1000)\n"
        "slow = np.empty(200_000, object)\nslow[:] = None\nslow[0] = Slow()"
    )
    asks.begin("%%gpu_train\neval('sl' + 'ow')")
    until((asks.folder / "asked").exists, "the question")
    _cell, pids = _begin(runs)
    status = shared_cluster.status()
    assert (status["gpus"]["held"], len(status["warm"]), len(status["runs"])) == (4, 1, 2)
    for notebook in (runs, asks, keeps):
        notebook.kill()
    until(lambda: not shared_cluster.status()["runs"], "their ends")
    for row in status["runs"]:
        assert shared_cluster._document(f"/v1/runs/{row['run']}")["state"] == "cancelled"
    shared_cluster.assert_nothing_is_held(*pids)


@pytest.mark.thorough
def test_the_gateway_is_killed_and_the_cell_goes_on(shared_cluster: Cluster, open_notebook: Open) -> None:
    notebook = open_notebook(shared_cluster)
    cell, pids = _begin(notebook)
    shared_cluster.kill("ray::Gateway")
    before = len(_ticks(notebook.until(lambda shown: True)))
    notebook.until(lambda shown: len(_ticks(shown)) > before + 20)
    (notebook.folder / "stop").touch()
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    ticks = _ticks(shown)
    assert ticks == list(range(1, len(ticks) + 1))  # no event lost, none doubled
    assert notebook.value("[kept, n]") == ["yes", len(ticks)]
    shared_cluster.assert_nothing_is_held(*pids)


@pytest.mark.thorough
def test_the_gateway_is_killed_and_a_detached_sweep_goes_on(
    shared_cluster: Cluster, open_notebook: Open, until: Until
) -> None:
    """Its driver comes back to the next gateway; trials under way go on, none runs twice, none is left out."""
    notebook = open_notebook(shared_cluster)
    folder = notebook.folder / "begun"
    folder.mkdir()
    notebook.ok(
        "%%gpu_sweep --detach --metric score --max --max-gpus 2 --name 'one of two gateways'\n"
        "import os, tempfile, time\nn = search([0, 1, 2, 3, 4, 5])\ntempfile.mkstemp(dir='begun', prefix=f'{n} ')\n"
        "while n > 1 and not os.path.exists('enough'):\n    time.sleep(0.02)\nscore = n + 0.5"
    )
    sweep = notebook.value("sweep.id")
    until(lambda: len(list(folder.iterdir())) == 4, "two are over, two run")
    shared_cluster.kill("ray::Gateway")
    (notebook.folder / "enough").touch()
    until(lambda: len(list(folder.iterdir())) >= 6, "the other two begin by the next gateway")
    shown = notebook.ok(f"%gpu_attach {sweep}")
    assert shown.displays()[-1].startswith("✓ 6 trials · 6 complete · best score=5.5 (trial 5)")
    assert notebook.value("[n, score]") == [5, 5.5]
    assert sorted(path.name[0] for path in folder.iterdir()) == list("012345")
    rows = shared_cluster.trials(sweep)
    assert [(row.state, row.earlier, list(row.metric)) for row in rows] == [("succeeded", [], ["score"])] * 6
    shared_cluster.assert_nothing_is_held()


@pytest.mark.thorough
def test_the_connection_between_gateway_and_agent_breaks_and_is_made_again(
    shared_cluster: Cluster, open_notebook: Open
) -> None:
    """An agent hangs up on its gateway when a newer one connects: here that is the test, and then the gateway again."""
    notebook = open_notebook(shared_cluster)
    cell, pids = _begin(notebook)
    (path,) = Path(shared_cluster.connection.runtime).glob("calls-*.sock")
    with socket.socket(socket.AF_UNIX) as newer:
        newer.settimeout(60)
        newer.connect(str(path))
        while newer.recv(1 << 16):
            continue
    assert shared_cluster.status()["gpus"]["held"] == 2
    seen = len(_ticks(notebook.until(lambda shown: True)))
    notebook.until(lambda shown: len(_ticks(shown)) > seen + 5)
    (notebook.folder / "stop").touch()
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    ticks = _ticks(shown)
    assert ticks == list(range(1, len(ticks) + 1))
    assert notebook.ok(GPU + "1 + 1").status == "ok"
    shared_cluster.assert_nothing_is_held(*pids)


_LAUNCHES = """
import asyncio, os, time
from jupyter_gpu_release import launch
here = os.getcwd()

def work(n):
    while not os.path.exists(here + "/stop"):
        time.sleep(0.02)
    return [n, int(os.environ.get("RANK", 0))]

gang = launch(work, 1, gpus=4, ranks=4, gather=True)
waits = launch(work, 2, gpus=2)
while (gang.status, waits.status) != ("running", "queued"):
    time.sleep(0.02)
"""


@pytest.mark.thorough
def test_the_gateway_is_killed_and_launched_functions_go_on(shared_cluster: Cluster, open_notebook: Open) -> None:
    notebook = open_notebook(shared_cluster)
    notebook.ok(_LAUNCHES)
    shared_cluster.kill("ray::Gateway")
    cell = notebook.begin(
        "late = launch(work, 3)\nwhile (gang.status, waits.status) != ('running', 'queued'):\n    time.sleep(0.02)\n"
        "print('so they are', flush=True)\nfound = await asyncio.gather(gang, waits, late)"
    )
    notebook.until(lambda shown: shown.lines() == ["so they are"])
    (notebook.folder / "stop").touch()
    assert notebook.end(cell).status == "ok"
    assert notebook.value("found") == [[[1, rank] for rank in range(4)], [2, 0], [3, 0]]
    assert notebook.value("[run.status for run in (gang, waits, late)]") == ["succeeded"] * 3
    shared_cluster.assert_nothing_is_held()


def test_the_node_agent_is_killed(shared_cluster: Cluster, open_notebook: Open) -> None:
    notebook = open_notebook(shared_cluster)
    cell, pids = _begin(notebook)
    shared_cluster.kill("ray::NodeAgent")
    shown = notebook.end(cell)
    assert shown.status == "error"
    assert "lost" in shown.traceback.lower() or "agent" in shown.traceback
    shared_cluster.assert_nothing_is_held(*pids)
    assert "'again'" in notebook.ok(GPU + "'again'").displays()


_SLOW = """
import pathlib, time
class Slow:
    def __init__(self, folder):
        self.folder = folder
    def __setstate__(self, state):
        self.__dict__.update(state)
        here = pathlib.Path(self.folder)
        (here / str(len(list(here.iterdir())))).touch()
        while len(list(here.iterdir())) < 2:
            time.sleep(0.01)
slow = Slow({folder!r})
"""


@pytest.mark.thorough
def test_a_cell_that_had_not_begun_when_its_agent_was_killed_begins_after_all(
    shared_cluster: Cluster, open_notebook: Open, tmp_path: Path, until: Until
) -> None:
    """It is loaded for good the second time only."""
    tries = tmp_path / "tries"
    tries.mkdir()
    notebook = open_notebook(shared_cluster)
    notebook.ok(_SLOW.format(folder=str(tries)))
    cell = notebook.begin(GPU + "folder = slow.folder\nprint('begun')")
    until(lambda: list(tries.iterdir()), "a rank that loads")
    shared_cluster.kill("ray::NodeAgent")
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert shown.lines().count("begun") == 1
    assert notebook.value("folder") == str(tries)
    shared_cluster.assert_nothing_is_held()


def test_the_fork_server_is_killed(shared_cluster: Cluster, open_notebook: Open) -> None:
    notebook = open_notebook(shared_cluster)
    cell, pids = _begin(notebook)
    shared_cluster.kill("node.fork_server")
    assert notebook.end(cell).status == "error"
    shared_cluster.assert_nothing_is_held(*pids)
    assert "'again'" in notebook.ok(GPU + "'again'").displays()


def test_an_interrupt_while_running_brings_the_names_back(shared_cluster: Cluster, open_notebook: Open) -> None:
    notebook = open_notebook(shared_cluster)
    cell, pids = _begin(notebook)
    notebook.interrupt()
    shown = notebook.end(cell)
    assert shown.reply["ename"] == "KeyboardInterrupt"
    assert notebook.value("kept") == "yes"
    assert notebook.value("n") > 3
    shared_cluster.assert_nothing_is_held(*pids)


def test_an_interrupt_while_queued_takes_nothing(shared_cluster: Cluster, open_notebook: Open, until: Until) -> None:
    holder, waiter = open_notebook(shared_cluster), open_notebook(shared_cluster)
    cell, pids = _begin(holder)
    waiting = waiter.begin("%%gpu_train --gpus 4\nnever = 1")
    until(lambda: shared_cluster.status()["queue"], "the run in the queue")
    assert shared_cluster.status()["queue"][0]["position"] == 1
    waiter.interrupt()
    assert waiter.end(waiting).status == "error"
    assert shared_cluster.status()["queue"] == []
    (holder.folder / "stop").touch()
    assert holder.end(cell).status == "ok"
    (holder.folder / "stop").unlink()
    shared_cluster.assert_nothing_is_held(*pids)


@pytest.mark.thorough
def test_interrupts_during_submission_and_transfer_leave_nothing(shared_cluster: Cluster, open_notebook: Open) -> None:
    notebook = open_notebook(shared_cluster)
    notebook.ok("import numpy as np\nbig = np.zeros(1 << 25)\nimport os, time")
    # ipykernel drops a request that is interrupted before its code begins or after that has ended
    code = (
        "print('begins')\nget_ipython().run_cell_magic('gpu_train', '', 'back = big + 1')\n"
        "while not os.path.exists('struck-{}'):\n    time.sleep(0.01)"
    )
    for delay in (0.01, 0.05, 0.2, 0.5, 1.0):
        cell = notebook.begin(code.format(delay))
        notebook.until(lambda shown: "begins" in shown.text())
        time.sleep(delay)  # strikes while importing, collecting, writing, running, or on the way back
        notebook.interrupt()
        (notebook.folder / f"struck-{delay}").touch()
        shown = notebook.end(cell)
        assert shown.status in ("ok", "error")
        assert shown.reply.get("ename", "KeyboardInterrupt") in ("KeyboardInterrupt", "RunCancelledError")
    shared_cluster.assert_nothing_is_held()
    assert "0.0" in notebook.ok("%%gpu_train\nfloat(big.sum())").displays()
