"""The questions of ``doctor`` to the nodes: each probes the store, its ways to the others, and their names."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

import msgspec
import ray

from ...errors import ClusterError
from ...protocol.node import NameLookup, PortTry, ProbeOrder, ProbeReport
from ...protocol.rest import DOCUMENT_VERSION, NodeCheck, NodeChecks
from .nodes import Node, NodeTable

#: each node tries the next so many, in a ring: every node tries, and is tried
_MOST_PEERS = 50
_STORE = "Ray's control store (GCS)"
_AGENT = "its node agent, for gangs over nodes"


class NodeChecker:
    """Answers ``GET /v1/checks``. Who asks while the nodes look gets the same answer: it is work for all of them."""

    def __init__(self, nodes: NodeTable, store: str, owned: Sequence[str] = ()) -> None:
        """``owned``: packages that the operator owns beside GPU libraries."""
        self._nodes = nodes
        self._store = store
        self._owned = list(owned)
        self._looking: asyncio.Task[NodeChecks] | None = None

    async def check(self, pythons: Sequence[str] = ()) -> NodeChecks:
        """Have every node probe the store and look for ``pythons``; of several also the ways between them."""
        if self._looking is None or self._looking.done():
            asked = ProbeOrder(pythons=list(pythons), owned=self._owned)
            self._looking = asyncio.create_task(_check_nodes(self._nodes, self._store, asked), name="doctor")
        return await asyncio.shield(self._looking)  # one who goes away does not take the answer from others


async def _check_nodes(nodes: NodeTable, store: str, asked: ProbeOrder) -> NodeChecks:
    awake = [node for node in nodes.alive() if not node.is_asleep]
    ports = dict(zip([node.node for node in awake], await _all_ports(nodes, awake), strict=True))
    orders = [_order(asked, at, awake, ports) for at in range(len(awake))]
    checks = await asyncio.gather(*(_check(nodes, *facts, store) for facts in zip(awake, orders, strict=True)))
    return NodeChecks(DOCUMENT_VERSION, store, list(checks), time.time())


async def _all_ports(nodes: NodeTable, awake: Sequence[Node]) -> list[list[PortTry]]:
    """The ports of each node that others have to reach; none where there is one node only."""
    if len({node.address for node in awake}) < 2:
        return [[] for _ in awake]
    return list(await asyncio.gather(*(_ports(nodes, node) for node in awake)))


def _control_store_port() -> int:
    """The port by which all nodes reach the head."""
    return int(str(ray.get_runtime_context().gcs_address).rpartition(":")[2])


async def _ports(nodes: NodeTable, node: Node) -> list[PortTry]:
    known = node.ray_ports | ({_control_store_port(): _STORE} if node.is_head else {})
    found = [PortTry(node.host, node.address, port, what) for port, what in known.items()]
    with contextlib.suppress(ClusterError):  # the node's own check says so
        address, port = await nodes.agent(node.node).open_rank_listener()
        found.append(PortTry(node.host, address, port, _AGENT))
    return found


def _order(asked: ProbeOrder, at: int, awake: Sequence[Node], ports: dict[str, list[PortTry]]) -> ProbeOrder:
    """The ports of a node's next peers, and their names and its own."""
    node = awake[at]
    ring = [*awake[at + 1 :], *awake[:at]]
    chosen = [peer for place, peer in enumerate(ring) if place < _MOST_PEERS or peer.is_head]
    peers = [peer for peer in chosen if peer.address and peer.address != node.address]
    names = [NameLookup(peer.host, peer.address) for peer in ([node, *peers] if peers else [])]
    return msgspec.structs.replace(asked, ports=[port for peer in peers for port in ports[peer.node]], names=names)


async def _check(nodes: NodeTable, node: Node, order: ProbeOrder, store: str) -> NodeCheck:
    agent, info = nodes.agent, node.info
    try:
        problem, probe = await asyncio.gather(agent(node.node).probe_store(store), _probe(nodes, node, order))
    except ClusterError as error:
        return NodeCheck(node.host, agent_problem=error.message)
    return NodeCheck(
        node.host,
        store_problem=problem,
        python=info.python if info else "",
        version=info.version if info else "",
        versions=info.versions if info else {},
        clock_ahead_s=node.clock_ahead_s,
        probe=probe,
    )


async def _probe(nodes: NodeTable, node: Node, order: ProbeOrder) -> ProbeReport | None:
    """None: the agent cannot, such as one that goes on from before an upgrade."""
    try:
        return await nodes.agent(node.node).probe_node(order)
    except (ClusterError, AttributeError):  # Ray's handle knows no such method
        return None
