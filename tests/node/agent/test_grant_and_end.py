"""From the grant to the end: what ranks do before they have GPUs, odd outputs, last words, what is left behind."""

from __future__ import annotations

import asyncio
import time

import pytest
from node_bed import Node

from jupyter_gpu_release.node.agent.run import RunOnNode
from jupyter_gpu_release.protocol.node import StartOrder
from jupyter_gpu_release.protocol.states import new_run_id


def _others_come_and_go(node: Node) -> None:
    """Time in which a run that were granted would have ended."""
    for _ in range(2):
        assert node.run("pass").outcome.status == "ok"


def test_a_run_begins_only_when_its_gpus_are_told(node: Node) -> None:
    told = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER'])"
    run = node.start(told, gpus=2, gpu_ids=None)
    _others_come_and_go(node)
    assert not run.messages
    node.loop.call_soon_threadsafe(run.on_node.grant, ["7", "4"])
    assert run.wait().status == "ok"
    assert run.text() == "7,4 PCI_BUS_ID\n", "numbers are those of the driver"


def test_a_run_whose_lease_came_to_nothing_ends_without_a_word(node: Node) -> None:
    run = node.start("print(1)", gpus=1, gpu_ids=None)
    _others_come_and_go(node)
    node.loop.call_soon_threadsafe(run.on_node.abandon)
    run.future.result(60)
    assert (run.messages, run.on_node.outcome) == ([], None)


def test_a_grant_that_comes_as_the_wait_for_it_ends_counts_and_no_later_one(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the gateway has a run with GPUs that nobody begins."""
    monkeypatch.setattr("jupyter_gpu_release.node.agent.run._GRANT_S", 0.01)
    order = StartOrder(new_run_id(), b"", str(node.store), 1)

    async def wait(*, grants_after_it: bool) -> tuple[list[str] | None, list[bool]]:
        run = RunOnNode(order, node.servers, None, node.keeping, lambda _: None)
        granted: list[bool] = []
        waiting = asyncio.create_task(run._until_granted())
        await asyncio.sleep(0)
        if grants_after_it:
            return await waiting, [run.grant(["7"])]
        asyncio.get_running_loop().call_later(0.02, lambda: granted.append(run.grant(["7"])))
        time.sleep(0.04)  # the agent is busy: it finds that both are due
        return await waiting, granted

    assert node.call(wait(grants_after_it=False)) == (["7"], [True])
    assert node.call(wait(grants_after_it=True)) == (None, [False])


def test_what_is_wrong_with_the_place_is_said_when_the_run_is_granted(node: Node) -> None:
    run = node.start("print(1)", gpus=1, gpu_ids=None, workdir="/no/such/folder", workdir_asked=True)
    _others_come_and_go(node)
    assert not run.messages
    node.loop.call_soon_threadsafe(run.on_node.grant, ["0"])
    outcome = run.wait()
    assert outcome.error is not None
    assert "/no/such/folder" in outcome.error.evalue


ODD_OUTPUTS = {
    "a str subclass": "class S(str): pass\nclass H:\n    def _repr_html_(self): return S('<b>hi</b>')\nH()",
    "numpy in metadata": "import numpy as np\ndisplay({'text/plain': 'x'}, raw=True, metadata={'a': np.int64(1)})",
    "a large int": "class J:\n    def _repr_mimebundle_(self, **_): return {'application/json': {'v': 2**70}}\nJ()",
    "a surrogate": "print('\\udcff')",
}


@pytest.mark.parametrize("source", ODD_OUTPUTS.values(), ids=list(ODD_OUTPUTS))
def test_outputs_of_odd_types_are_shown(node: Node, source: str) -> None:
    run = node.run("kept = 1\n" + source)
    assert run.outcome.status == "ok"
    assert run.events
    assert [value.name for value in run.outcome.results if value.name == "kept"] == ["kept"]


def test_errors_with_odd_texts_are_raised(node: Node) -> None:
    for source in ("class S(str): pass\nraise KeyError(S('x'))", "raise ValueError('bad \\udcff')"):
        outcome = node.run(source).outcome
        assert outcome.status == "error"
        assert outcome.error is not None
        assert outcome.error.ename in ("KeyError", "ValueError")


@pytest.mark.parametrize("end", ["import ctypes; ctypes.string_at(0)", "os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_the_last_words_before_a_crash_are_shown(node: Node, end: str) -> None:
    run = node.run(f"import os\nprint('one')\nprint('two')\n{end}")
    assert run.outcome.status == "died"
    assert run.text().startswith("one\ntwo\n")


def test_a_rank_that_is_interrupted_before_its_cell_says_so(node: Node) -> None:
    run = node.start("print(1)", gpus=1, gpu_ids=None)
    run.signal("interrupt")
    node.loop.call_soon_threadsafe(run.on_node.grant, ["0"])
    outcome = run.wait()
    assert (outcome.status, outcome.started_s, run.text()) == ("interrupted", None, "")
    assert outcome.error is not None
    assert "before its first statement" in outcome.error.evalue


def test_a_workdir_that_is_a_file_is_named(node: Node) -> None:
    (node.store / "file").write_text("")
    outcome = node.run("1", workdir=str(node.store / "file"), workdir_asked=True).outcome
    assert outcome.error is not None
    assert outcome.error.ename == "OptionError"
    assert "Not a directory" in outcome.error.evalue


def test_joblibs_idle_workers_do_not_hold_the_gpu(node: Node) -> None:
    pytest.importorskip("joblib")
    run = node.run(
        "from joblib import Parallel, delayed\nprint(Parallel(n_jobs=2)(delayed(abs)(-i) for i in range(4)))"
    )
    assert run.text() == "[0, 1, 2, 3]\n"
    assert [note for note in run.outcome.notes if "importing joblib" not in note] == []  # that takes what it takes


def test_drawing_a_traceback_counts_as_release(node: Node) -> None:
    outcome = node.run(
        "import time\nclass Slow(Exception):\n    def _render_traceback_(self):\n"
        "        time.sleep(0.2)\n        return ['x']\nraise Slow"
    ).outcome
    assert outcome.ended_s is not None
    assert outcome.collected_s is not None
    assert outcome.ended_s < outcome.collected_s - 0.19


def test_another_ranks_death_leaves_rank_0s_names(node: Node) -> None:
    source = "import os, time\nkept = 1\nif os.environ['RANK'] == '1':\n    os._exit(3)\ntime.sleep(1000)"
    outcome = node.run(source, ranks=2, gpu_ids=["0", "1"]).outcome
    assert outcome.status == "died"
    assert outcome.error is not None
    assert outcome.error.evalue.startswith("rank 1 on ")
    assert "names are gone" not in outcome.error.evalue
