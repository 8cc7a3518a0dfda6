"""``GET /v1/checks``: however many ask at once, the nodes look once, each at its peers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster import node_checks
from jupyter_gpu_release.gateway.cluster.node_checks import NodeChecker
from jupyter_gpu_release.protocol.node import ProbeOrder, ProbeReport


class _Nodes:
    """No node; it counts who asks for them."""

    looks = 0
    is_broken = False

    def alive(self) -> list[Any]:
        self.looks += 1
        if self.is_broken:
            raise RuntimeError("Ray is gone")
        return [SimpleNamespace(is_asleep=True)]


@pytest.mark.asyncio
async def test_who_asks_meanwhile_gets_the_same_answer() -> None:
    nodes: Any = _Nodes()
    checker = NodeChecker(nodes, "/store")
    first, left, last = (asyncio.ensure_future(checker.check()) for _ in range(3))
    await asyncio.sleep(0)
    left.cancel()
    assert await first is await last
    assert nodes.looks == 1


@pytest.mark.asyncio
async def test_who_asks_afterwards_has_the_nodes_look_again() -> None:
    """An admin has changed something in between."""
    nodes: Any = _Nodes()
    checker = NodeChecker(nodes, "/store")
    nodes.is_broken = True
    with pytest.raises(RuntimeError):
        await checker.check()
    nodes.is_broken = False
    assert (await checker.check()).store == "/store", "a failure is not kept"
    await checker.check()
    assert nodes.looks == 3


class _Agent:
    def __init__(self, name: str) -> None:
        self.name = name
        self.order = ProbeOrder()

    async def open_rank_listener(self) -> tuple[str, int]:
        if self.name == "c":
            raise ClusterError("it does not answer")
        return f"10.0.0.{self.name}", 9000

    async def probe_store(self, path: str) -> str:
        return f"no {path}" if self.name == "b" else ""

    async def probe_node(self, order: ProbeOrder) -> ProbeReport:
        self.order = order
        if self.name == "d":
            raise ClusterError("it does not answer")
        return ProbeReport(names=order.names)


@pytest.mark.asyncio
async def test_each_node_tries_its_next_peers_and_the_head_and_no_node_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "_MOST_PEERS", 1)
    monkeypatch.setattr(node_checks, "_control_store_port", lambda: 6379)
    agents = {name: _Agent(name) for name in "abcd"}
    alive = [
        SimpleNamespace(
            node=name,
            host=f"host-{name}",
            address=f"10.0.0.{name}",
            is_head=name == "a",
            ray_ports={7000: "raylet"},
            is_asleep=False,
            info=None,
            clock_ahead_s=0.0,
        )
        for name in agents
    ]
    nodes: Any = SimpleNamespace(alive=lambda: alive, agent=agents.__getitem__)
    checks = (await NodeChecker(nodes, "/store").check(["/usr/bin/python3.13"])).nodes
    tried = {name: [(port.host, port.port) for port in agent.order.ports] for name, agent in agents.items()}
    head = [("host-a", 7000), ("host-a", 6379), ("host-a", 9000)]
    assert tried == {
        "a": [("host-b", 7000), ("host-b", 9000)],
        "b": [("host-c", 7000), *head],  # its agent opens no port
        "c": [("host-d", 7000), ("host-d", 9000), *head],
        "d": head,
    }
    assert [[name.name for name in agent.order.names] for agent in agents.values()] == [
        ["host-a", "host-b"],
        ["host-b", "host-c", "host-a"],
        ["host-c", "host-d", "host-a"],
        ["host-d", "host-a"],
    ]
    assert {tuple(agent.order.pythons) for agent in agents.values()} == {("/usr/bin/python3.13",)}
    assert [check.store_problem for check in checks] == ["", "no /store", "", ""]
    assert [check.probe is None for check in checks] == [False, False, False, True]
    del alive[1:]
    await NodeChecker(nodes, "/store").check()
    assert (agents["a"].order.ports, agents["a"].order.names) == ([], []), "there is no way to anybody"
