"""Restartable cells of real kernels that are preempted, or lose their node, at the worst moments."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fault_bed import Cluster, wait_dead
from kernel_bed import Notebook

Open = Callable[[Cluster], Notebook]
Until = Callable[[Callable[[], object], str], None]

# an agent that is killed comes back: minutes on a machine that is busy
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]
_URGENT = """%%gpu_train --gpus 4 --priority high
import os, time
while not os.path.exists("urgent-end"):
    time.sleep(0.01)
"""
#: writes each round down; ends once the file is there
_LOOP = """%%gpu_train --gpus 4 --restartable --priority low{options}
import os, time
import jupyter_gpu_release as gpu_release
for n in gpu_release.resumable(range(10**9), every={every}):
    with open(gpu_release.run_dir / "rounds", "a") as rounds:
        print(n, file=rounds)
    with open("begun", "a") as begun:
        print(n, os.getpid(), file=begun)
    seen.append(n)
    if os.path.exists("end"):
        break
    time.sleep(0.01)
"""
#: it cannot be read before the file is there
_SLOW = """
import os, time
seen = []
class Slow:
    def __reduce__(self):
        return (wait_for_file, ())

def wait_for_file():
    import os, time
    open("reading", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.01)
    return Slow()

slow = Slow()
"""


def _rounds(cluster: Cluster, run: str) -> list[int]:
    path = cluster.home / "store" / "runs" / run / "files" / "rounds"
    return [int(line) for line in path.read_text().split()]


def _state(cluster: Cluster, run: str) -> str:
    return str(cluster._document(f"/v1/runs/{run}")["state"])


def test_who_goes_first_takes_the_gpus_of_one_whose_inputs_are_still_copied(
    shared_cluster: Cluster, open_notebook: Open, until: Until
) -> None:
    low, high = open_notebook(shared_cluster), open_notebook(shared_cluster)
    low.ok(_SLOW)
    cell = low.begin(_LOOP.format(options="", every=0) + "slow\n")
    until((low.folder / "reading").exists, "its inputs are read")
    run = shared_cluster.last_run()["run"]
    urgent = high.begin(_URGENT)
    until(lambda: shared_cluster.last_run()["state"] == "queued", "the urgent one waits")
    (low.folder / "go").touch()
    high.until(lambda shown: "running on" in str(shown.displays()[-1:]))
    assert _state(shared_cluster, run) == "queued"
    for name in ("urgent-end", "end"):
        (low.folder / name).touch()
    assert low.end(cell).status == high.end(urgent).status == "ok"
    rounds = _rounds(shared_cluster, run)
    assert low.value("seen") == rounds == list(range(len(rounds)))
    shared_cluster.assert_nothing_is_held()


def test_a_detached_run_goes_on_though_its_kernel_ended_while_it_had_preempted(
    shared_cluster: Cluster, open_notebook: Open, until: Until
) -> None:
    low, high = open_notebook(shared_cluster), open_notebook(shared_cluster)
    low.ok("seen = []")
    low.ok(_LOOP.format(options=" --detach", every=0))
    run = shared_cluster.last_run()["run"]
    for end in ("urgent-end", "end"):  # twice in a row
        urgent = high.begin(_URGENT)
        high.until(lambda shown: "running on" in str(shown.displays()[-1:]))
        assert _state(shared_cluster, run) == "queued"
        if end == "urgent-end":
            low.kill()
        (high.folder / "urgent-end").touch()
        assert high.end(urgent).status == "ok"
        (high.folder / "urgent-end").unlink()
        until(lambda: _state(shared_cluster, run) == "running", "it goes on")
    (high.folder / "end").touch()
    shown = high.ok(f"%gpu_attach {run}")
    assert "preempted" in shown.receipt
    rounds = _rounds(shared_cluster, run)
    assert high.value("seen") == rounds == list(range(len(rounds)))
    shared_cluster.assert_nothing_is_held()


def test_a_node_that_is_killed_between_two_saves_costs_what_came_after_the_last(
    shared_cluster: Cluster, open_notebook: Open, until: Until
) -> None:
    notebook = open_notebook(shared_cluster)
    notebook.ok("seen, jobs = [], [[], []]\nwaiting = list(jobs)")
    source = _LOOP.format(options="", every="'200ms'")
    cell = notebook.begin(
        source.replace("    seen.append(n)\n", "    seen.append(n)\n    waiting and waiting.pop().append(n)\n")
    )
    until(lambda: list(_folder(shared_cluster).glob("save-2.graph")), "saves")
    run = shared_cluster.last_run()["run"]
    rank = psutil.Process(int((notebook.folder / "begun").read_text().split()[1]))
    shared_cluster.kill("ray::NodeAgent")
    with contextlib.suppress(psutil.NoSuchProcess):
        rank.kill()
    wait_dead([rank])
    before = _begun(notebook.folder)
    until(lambda: len(_begun(notebook.folder)) > len(before), "it goes on")
    again = _begun(notebook.folder)[len(before)]
    assert 0 < again <= before[-1] + 1
    (notebook.folder / "end").touch()
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert any(f"again from n {again}" in str(text) for text in shown.displays())
    rounds = _rounds(shared_cluster, run)
    assert notebook.value("seen") == rounds == list(range(len(rounds)))
    assert notebook.value("jobs") == [[1], [0]], "taken out of an input before it was killed"
    assert re.search(r"lost|died|vanished", shown.receipt), shown.receipt
    shared_cluster.assert_nothing_is_held()


def _folder(cluster: Cluster) -> Path:
    return cluster.home / "store" / "runs" / str(cluster.last_run()["run"])


def _begun(folder: Path) -> list[int]:
    return [int(line.split()[0]) for line in (folder / "begun").read_text().splitlines()]
