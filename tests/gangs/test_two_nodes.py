"""Gangs over two nodes (two raylets on this machine): placed, started together, ended together, whatever dies."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fault_bed import Cluster
from kernel_bed import Notebook, Shown
from second_node import SecondNode

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.host.process_control import kill_each
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded

# the cluster of its own: 15 s, minutes on a machine that is busy
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]
Until = Callable[[Callable[[], object], str], None]
#: the head has more, so that what takes all of the second node's is led by that one: it can die
_ON_HEAD, _ON_SECOND = 3, 2
_GANG = "%%gpu_train --gpus 4 --ranks 4 --nodes 2 "
_WHO = "import os\nfrom jupyter_gpu_release import ranks\n"
#: rank 0 tells all processes, and goes on until the file is there
_LONG = (
    "import pathlib, time\n" + _WHO + "pids = [ranks.broadcast(os.getpid(), src=rank) for rank in range(4)]\n"
    "print('pids', *pids, flush=True)\nn = 0\n"
    "while ranks.rank == 0 and not pathlib.Path('stop').exists():\n"
    "    n += 1\n    print('tick', n, flush=True)\n    time.sleep(0.05)\n"
    "ranks.barrier()\nmine = [ranks.rank, os.environ['CUDA_VISIBLE_DEVICES']]\n"
)
#: ranks 0 to 2 leave a sign when they stand in the collective that rank 3 never joins
_COLLECTIVE = (
    "import pathlib, sys, threading, time, torch, torch.distributed as dist\n" + _WHO + "me = threading.get_ident()\n"
    "def watch():\n    while sys._current_frames()[me].f_code.co_name != 'all_reduce':\n        time.sleep(0.01)\n"
    "    pathlib.Path(f'{sign}-{ranks.rank}').touch()\n"
    "pids = [ranks.broadcast(os.getpid(), src=rank) for rank in range(4)]\nprint('pids', *pids, flush=True)\n"
    "dist.init_process_group('gloo')\nkept = torch.ones(2)\ndist.all_reduce(kept)\n"
    "if ranks.rank == 3:\n    time.sleep(1000)\n"
    "threading.Thread(target=watch, daemon=True).start()\ndist.all_reduce(torch.ones(2))"
)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, SecondNode]]:
    home = HomePaths(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPU_PRELOAD", "numpy,torch")  # on each of the two nodes
        try:
            ready = start_embedded(home=home, asked=StartOptions(simulated=_ON_HEAD), progress=print)
            node = SecondNode(ready, _ON_SECOND)
            node.wait_until_up(_ON_HEAD + _ON_SECOND)
            cluster = Cluster(ready)
            yield cluster, node
            cluster.close()
        finally:
            stop_embedded(home)


@pytest.fixture(scope="module")
def cluster(two_nodes: tuple[Cluster, SecondNode]) -> Cluster:
    return two_nodes[0]


@pytest.fixture(scope="module")
def second(two_nodes: tuple[Cluster, SecondNode]) -> SecondNode:
    return two_nodes[1]


@pytest.fixture(scope="module")
def notebook(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPU_HOME", str(cluster.home))
        made = Notebook(tmp_path_factory.mktemp("work"))
        yield made
        made.close()


def _pids(shown: Shown) -> list[int]:
    found = re.search(r"^pids (.*)\n", shown.text(), re.MULTILINE)
    return [int(pid) for pid in found[1].split()] if found else []


def _ticks(shown: Shown) -> list[int]:
    return [int(n) for n in re.findall(r"^tick (\d+)\n", shown.text(), re.MULTILINE)]


def _begin(notebook: Notebook, options: str = "") -> tuple[str, list[int]]:
    """A long gang whose ranks all run, and their processes."""
    cell = notebook.begin(f"{_GANG}{options}\n{_LONG}")
    return cell, _pids(notebook.until(lambda shown: len(_ticks(shown)) > 3))


def _agents(cluster: Cluster) -> dict[int, psutil.Process]:
    """By their raylets; without what they have just forked, which bears their name for a moment."""
    found = {process.pid: process for process in cluster.find("ray::NodeAgent")}
    return {process.ppid(): process for process in found.values() if process.ppid() not in found}


def test_ranks_know_their_places_and_meet_over_nodes(notebook: Notebook) -> None:
    cell = (
        _WHO + "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "total = torch.tensor(float(ranks.rank)); dist.all_reduce(total); dist.destroy_process_group()\n"
        "names = 'RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK WORLD_SIZE CUDA_VISIBLE_DEVICES'.split()\n"
        "mine = [float(total), ranks.broadcast(os.getpid()), [os.environ[name] for name in names]]\n"
        "large = torch.full((300_000,), float(ranks.rank))\n"
    )
    notebook.ok(_GANG + "--gather mine,large\n" + cell)
    assert notebook.value("[float(tensor.sum()) for tensor in large]") == [0.0, 3e5, 6e5, 9e5]
    mine = notebook.value("mine")
    assert [found[0] for found in mine] == [6.0] * 4
    assert len({found[1] for found in mine}) == 1
    assert [found[2] for found in mine] == [
        ["0", "0", "2", "0", "4", "0"],
        ["1", "1", "2", "0", "4", "1"],
        ["2", "0", "2", "1", "4", "0"],
        ["3", "1", "2", "1", "4", "1"],
    ]


@pytest.mark.parametrize("options", ["--gpus 4 --ranks 4 --nodes any", "--gpus 5 --ranks 5"])
def test_a_gang_runs_wherever_there_is_room(notebook: Notebook, options: str) -> None:
    """3 + 1; and 3 + 2 without a word, since no one node has five."""
    ranks = int(options.split()[1])
    notebook.ok(
        f"%%gpu_train {options} --gather mine\n{_WHO}import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\ntotal = torch.tensor(float(ranks.rank)); dist.all_reduce(total)\n"
        "dist.destroy_process_group()\n"
        "names = 'RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE WORLD_SIZE'.split()\n"
        "mine = [float(total), ranks.node, os.environ['CUDA_VISIBLE_DEVICES'], [int(os.environ[n]) for n in names]]\n"
    )
    mine = notebook.value("mine")
    assert [found[0] for found in mine] == [sum(range(ranks))] * ranks, "all of them have met"
    assert [found[3] for found in mine] == [
        *([rank, rank, 3, 0, 2, ranks] for rank in range(3)),
        *([rank, rank - 3, ranks - 3, 1, 2, ranks] for rank in range(3, ranks)),
    ]
    assert [found[1] for found in mine] == [0, 0, 0, *[1] * (ranks - 3)]
    assert len({(found[1], found[2]) for found in mine}) == ranks, "each has a GPU of its own"


def test_large_values_of_all_nodes_come_together_and_the_gpus_free_without_a_store(
    notebook: Notebook, cluster: Cluster, until: Until
) -> None:
    store = Path(cluster.connection.store)
    away = store.with_name("store-away")
    cell = notebook.begin(
        _GANG + "--gather large\n" + _WHO + "import torch\nlarge = torch.full((1_000_000,), float(ranks.rank))\n"
        f"ranks.barrier()\nif ranks.rank == 0:\n    os.rename({str(store)!r}, {str(away)!r})\nranks.barrier()"
    )
    try:
        until(away.exists, "the cell has taken the store away")
        until(lambda: cluster.status()["gpus"]["held"] == 0, "its GPUs are free")
        until(lambda: cluster.last_run()["state"] == "persisting", "the run waits for its store")
    finally:
        away.rename(store)
    assert notebook.end(cell).status == "ok"
    assert notebook.value("[float(tensor.sum()) for tensor in large]") == [0.0, 1e6, 2e6, 3e6]


def test_a_failure_reaches_every_node(notebook: Notebook, cluster: Cluster) -> None:
    failed = notebook.run(_GANG + "\nimport time\n" + _WHO + "if ranks.rank == 3:\n    1 / 0\ntime.sleep(1000)")
    assert re.search(r"in rank 3 on \S+:[\s\S]*ZeroDivisionError", failed.traceback), failed.traceback


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("interrupt", "KeyboardInterrupt"),
        ("kill", r"rank 2 on \S+: the cell's process was killed \(SIGKILL\)"),  # on the node that lends
    ],
)
def test_an_end_inside_a_collective_frees_both_nodes_and_keeps_rank_0s_names(
    notebook: Notebook, cluster: Cluster, until: Until, end: str, words: str
) -> None:
    """None of the ranks inside reacts to an interrupt, for they are in C."""
    cell = notebook.begin(f"{_GANG}\nsign = {end!r}\n{_COLLECTIVE}")
    until(lambda: len(list(notebook.folder.glob(f"{end}-*"))) == 3, "ranks of both nodes are inside")
    pids = _pids(notebook.until(_pids))
    assert len(cluster.placement_groups()) == 1
    began_s = time.time()
    if end == "interrupt":
        notebook.interrupt()
    else:
        os.kill(pids[2], signal.SIGKILL)
    ended = notebook.end(cell)
    cluster.assert_nothing_is_held(*pids)
    print(f"{end}: the GPUs were free after {cluster.last_run()['gone_at'] - began_s:.2f} s")
    assert re.search(words, ended.traceback), ended.traceback
    # They come from rank 0 itself, which is killed, and its names lost, when its grace (8 s) is over: no clock needed.
    assert notebook.value("[kept.tolist(), sign]") == [[4.0, 4.0], end]


def test_asks_that_the_nodes_cannot_meet_are_refused_in_words(notebook: Notebook) -> None:
    refused = notebook.run("%%gpu_train --gpus 3 --ranks 3 --nodes 3\n1")
    assert "asks for 3 nodes, the cluster has 2" in refused.traceback
    refused = notebook.run("%%gpu_train --gpus 4\n1")
    assert "--ranks with --nodes" in refused.traceback


def test_a_hiccup_of_a_node_is_told_and_costs_nothing(
    notebook: Notebook, cluster: Cluster, second: SecondNode, until: Until
) -> None:
    cell, pids = _begin(notebook)
    with second.hiccup():
        began_s = time.monotonic()
        until(lambda: "does not answer" in cluster.last_run()["reason"], "its user is told")
        print(f"silence: told after {time.monotonic() - began_s:.1f} s")
    until(lambda: not cluster.last_run()["reason"], "and told that it is over")
    (notebook.folder / "stop").touch()
    shown = notebook.end(cell)
    (notebook.folder / "stop").unlink()
    assert shown.status == "ok", shown.traceback
    ticks = _ticks(shown)
    assert ticks == list(range(1, len(ticks) + 1))
    cluster.assert_nothing_is_held(*pids)


def test_gpus_kept_on_two_nodes_are_the_next_gangs_and_can_be_released(notebook: Notebook, cluster: Cluster) -> None:
    cell = _GANG + "--keep 10m --gather node\n" + _WHO + "node = ranks.node"
    notebook.ok(cell)
    [kept] = cluster.status()["warm"]
    groups = cluster.placement_groups()
    again = notebook.ok(cell)
    assert "kept by the cell before" in again.receipt
    assert notebook.value("node") == [0, 0, 1, 1]
    assert cluster.placement_groups() == groups
    [anew] = cluster.status()["warm"]
    assert (anew["gpu_ids"], anew["hosts"]) == (kept["gpu_ids"], kept["hosts"])
    assert "4" in notebook.ok("%gpu_release").text()
    cluster.assert_nothing_is_held()


def test_the_agent_of_a_node_that_lends_dies(notebook: Notebook, cluster: Cluster, second: SecondNode) -> None:
    cell, pids = _begin(notebook)
    [agent] = [found for raylet, found in _agents(cluster).items() if raylet != second.raylet]
    agent.kill()
    ended = notebook.end(cell)
    assert "is gone, or its agent is" in ended.traceback
    cluster.assert_nothing_is_held(*pids)
    assert notebook.ok(_GANG + "\nagain = 1").status == "ok"


def test_the_node_that_leads_dies(notebook: Notebook, cluster: Cluster, second: SecondNode) -> None:
    """It does not come back."""
    cell, pids = _begin(notebook)
    second.kill()
    ended = notebook.end(cell)
    assert ended.status == "error"
    assert "is gone" in ended.traceback
    cluster.assert_nothing_is_held(*pids)
    assert notebook.ok("%%gpu_train --gpus 2\nagain = 2").status == "ok"


def test_a_node_that_lends_falls_silent(notebook: Notebook, cluster: Cluster, second: SecondNode, until: Until) -> None:
    """No connection ends: the leader hears of it from the gateway, and that from Ray, or never."""
    second.kill()  # when this test runs alone
    until(lambda: cluster.status()["gpus"]["total"] == _ON_HEAD, "the node of before is known to be gone")
    second.start_anew(_ON_HEAD + 1)  # has more than the head, so that leads
    second.wait_until_up(_ON_HEAD + _ON_HEAD + 1)
    cell, pids = _begin(notebook)
    agent = _agents(cluster)[second.raylet]
    silent, began_s = second.fall_silent(), time.time()
    try:
        ended = notebook.end(cell)
        print(f"silence: the cell ended after {time.time() - began_s:.2f} s")
        stopped = {process.pid for process in silent if process.is_running() and process.status() == "stopped"}
        assert {agent.pid, *pids[2:]} <= stopped
    finally:
        kill_each(process.pid for process in silent)
        psutil.wait_procs(silent, timeout=10)
    assert re.search("the node .* is gone, or its agent is", ended.traceback), ended.traceback
    cluster.assert_nothing_is_held(*pids)
    assert notebook.ok(f"%%gpu_train --gpus {_ON_HEAD}\nagain = 3").status == "ok"
