"""What the agent says reaches a rank, however full the way to it is and however slow the rank."""

from __future__ import annotations

import contextlib
import signal
import types
from collections.abc import Callable

import psutil
import pytest
from node_bed import Node

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.node.agent import fork_server
from jupyter_gpu_release.node.supervisor import limits
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

UntilTrue = Callable[[Callable[[], object], str], None]
#: said by the rank itself
_IS_WARM = "from jupyter_gpu_release.node.values import settings\nprint(settings._at_rest is not None)"


def _pairs(node: Node) -> dict[int, int]:
    """Ranks that stand by or run, with their supervisors."""
    server = node.call(node.servers.start_server())
    return {rank: pid for pid in process_control.children_of(server.pid) for rank in process_control.children_of(pid)}


def _turns(supervisors: list[int]) -> int:
    """How often the busiest of them went round its loop: with an order it looks around ten times a second."""
    turns = [0]
    for pid in supervisors:
        with contextlib.suppress(psutil.NoSuchProcess):  # of a run before this one
            turns.append(psutil.Process(pid).num_ctx_switches().voluntary)
    return max(turns)


@pytest.mark.parametrize("kib", [205, 209, 213])
def test_a_grant_reaches_a_rank_that_has_not_read_its_order_yet(node: Node, until: UntilTrue, kib: int) -> None:
    until(lambda: len(_pairs(node)) > 1, "ranks that stand by")
    pairs = _pairs(node)
    process_control.kill_each(pairs, signal.SIGSTOP)
    try:
        run = node.start(f"# {'x' * (kib << 10)}\nprint('begun')", gpus=1, gpu_ids=None)
        node.loop.call_soon_threadsafe(run.on_node.grant, ["0"])
        before = _turns(list(pairs.values()))
        until(lambda: _turns(list(pairs.values())) > before + 5, "a supervisor that has heard of the grant")
    finally:
        process_control.kill_each(pairs, signal.SIGCONT)
    assert run.wait(60).status == "ok"
    assert run.text() == "begun\n"


def test_an_order_does_not_wait_until_a_rank_has_warmed_up(
    node: Node, until: UntilTrue, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = node.call(node.servers.start_server())
    monkeypatch.setattr(fork_server, "_WARM_QUIET_S", 3600.0)
    while node.run(_IS_WARM).text() == "True\n":
        pass
    until(lambda: len(server._spares) == node.servers._standby, "ranks that stand by, none of them warm")
    pairs = _pairs(node)
    process_control.kill_each(pairs, signal.SIGSTOP)
    try:
        for pair in server._spares:
            node.loop.call_soon_threadsafe(pair.warm_up)
        before = _turns(list(pairs.values()))
        run = node.start(_IS_WARM, gpus=0, gpu_ids=[])
        until(lambda: _turns(list(pairs.values())) > before + 5, "a supervisor that has passed the order on")
    finally:
        process_control.kill_each(pairs, signal.SIGCONT)
        node.loop.call_soon_threadsafe(server._filling.cancel)  # it waits for a moment that is not to come
    assert run.wait(60).status == "ok"
    assert run.text() == "False\n"


def test_a_rank_that_does_nothing_with_its_gpus_ends(
    node: Node, until: UntilTrue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALL_S", 0.5)
    until(lambda: len(_pairs(node)) > 1, "ranks that stand by")
    process_control.kill_each(_pairs(node), signal.SIGSTOP)
    outcome = node.run("print(1)", gpus=1).outcome
    process_control.kill_each(_pairs(node), signal.SIGCONT)
    assert (outcome.status, outcome.started_s) == ("lost", None)
    assert outcome.error is not None
    assert "did not begin: its process did nothing for 500 ms" in outcome.error.evalue
    assert "SIGSTOP" in outcome.error.evalue


def test_a_rank_that_loads_slowly_may_take_its_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALL_S", 0.5)
    realm = NamespaceInfo(types.ModuleType("__main__").__dict__, at_home=True)
    dump = codec.dump({"slow": _Slow()}, realm)
    run = node.run("print(slow.begun)", gpus=1, inputs=Graph(stream=dump.stream))
    assert (run.outcome.error, run.text()) == (None, "True\n")


class _Slow:
    """Takes longer to load than a rank may do nothing."""

    def __reduce__(self) -> tuple[object, ...]:
        slowly = "import time\nfor _ in range(60): time.sleep(0.03)"
        return eval, (f"exec({slowly!r}) or __import__('types').SimpleNamespace(begun=True)",)
