"""Gangs over two nodes (two raylets on this machine): placed, started together, ended together, whatever dies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from kernel_bed import Notebook
from second_node import SecondNode

from jupyter_gpu_release.cli.embedded import start_embedded, stop_embedded
from jupyter_gpu_release.client.home import HomePaths

pytestmark = pytest.mark.timeout(480)  # the cluster of its own: 15 s, minutes on a machine that is busy
_GPUS = 2
_GANG = "%%gpu_train --gpus 4 --ranks 4 --nodes 2 "
_WHO = "import os\nfrom jupyter_gpu_release import ranks\n"


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondNode]:
    home = HomePaths(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPU_PRELOAD", "numpy,torch")  # on each of the two nodes
        try:
            node = SecondNode(start_embedded(home=home, simulated=_GPUS, progress=print), _GPUS)
            node.wait_until_up(2 * _GPUS)
            yield node
        finally:
            stop_embedded(home)


@pytest.fixture(scope="module")
def notebook(second: SecondNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPU_HOME", str(Path(second.connection.token_file).parent))
        made = Notebook(tmp_path_factory.mktemp("work"))
        yield made
        made.close()


Free = Callable[[], None]


@pytest.fixture
def all_free(second: SecondNode, until: Callable[[Callable[[], object], str], None]) -> Free:
    """Wait until no GPU is held."""
    return lambda: until(lambda: second.status()["gpus"]["held"] == 0, "all GPUs to be free")


def test_ranks_know_their_places_and_meet_over_nodes(notebook: Notebook) -> None:
    cell = (
        _WHO + "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "total = torch.tensor(float(ranks.rank)); dist.all_reduce(total); dist.destroy_process_group()\n"
        "names = 'RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK WORLD_SIZE CUDA_VISIBLE_DEVICES'.split()\n"
        "mine = [float(total), ranks.broadcast(os.getpid()), [os.environ[name] for name in names]]\n"
    )
    notebook.ok(_GANG + "--gather mine\n" + cell)
    mine = notebook.value("mine")
    assert [found[0] for found in mine] == [6.0] * 4
    assert len({found[1] for found in mine}) == 1
    assert [found[2] for found in mine] == [
        ["0", "0", "2", "0", "4", "0"], ["1", "1", "2", "0", "4", "1"],
        ["2", "0", "2", "1", "4", "0"], ["3", "1", "2", "1", "4", "1"],
    ]  # fmt: skip


def test_an_interrupt_and_a_failure_reach_every_node(notebook: Notebook, all_free: Free) -> None:
    failed = notebook.run(_GANG + "\nimport time\n" + _WHO + "if ranks.rank == 3:\n    1 / 0\ntime.sleep(1000)")
    assert re.search(r"in rank 3 on \S+:[\s\S]*ZeroDivisionError", failed.traceback), failed.traceback
    all_free()
    cell = notebook.begin(_GANG + "\nimport time\nprint('go')\ntime.sleep(1000)")
    notebook.until(lambda shown: "go" in shown.text())
    notebook.interrupt()
    assert "KeyboardInterrupt" in notebook.end(cell, 30).traceback
    all_free()


def test_asks_that_the_nodes_cannot_meet_are_refused_in_words(notebook: Notebook) -> None:
    refused = notebook.run("%%gpu_train --gpus 3 --ranks 3 --nodes 3\n1")
    assert "asks for 3 nodes, the cluster has 2" in refused.traceback
    refused = notebook.run("%%gpu_train --gpus 4 --ranks 4\n1")
    assert "--ranks with --nodes" in refused.traceback


def test_a_node_that_dies_fails_the_gang_and_frees_the_other(
    notebook: Notebook, second: SecondNode, all_free: Free
) -> None:
    """Last: it does not come back."""
    cell = notebook.begin(
        _GANG + "\nimport time\n" + _WHO + "kept = 5\nprint('go', os.getpid(), flush=True)\ntime.sleep(1000)"
    )
    pattern = re.compile(r"go (\d+)")
    shown = notebook.until(lambda shown: pattern.search(shown.text()))
    match = pattern.search(shown.text())
    assert match is not None
    rank = int(match[1])
    second.kill()
    ended = notebook.end(cell, 60)
    assert ended.status == "error"
    assert "gone" in ended.traceback
    all_free()
    assert not psutil.pid_exists(rank)
