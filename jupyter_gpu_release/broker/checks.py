"""What ``jupyter gpu doctor`` wants to know of each node: its agent answers, the store is written and read there."""

from __future__ import annotations

import asyncio

from ..core.documents import DOCUMENT_VERSION, NodeCheck, NodeChecks
from ..errors import ClusterError
from .broker import Broker
from .node_facts import Node

_PROBE_S = 20.0


async def check_nodes(broker: Broker) -> NodeChecks:
    """Have every node probe the store now."""
    checks = await asyncio.gather(*(_check(broker, node) for node in broker.nodes.alive()))
    return NodeChecks(DOCUMENT_VERSION, broker.config.store, list(checks))


async def _check(broker: Broker, node: Node) -> NodeCheck:
    try:
        problem: str = await broker.nodes.call(node.node, "probe_store", broker.config.store, timeout_s=_PROBE_S)
    except ClusterError as error:
        return NodeCheck(node.host, agent_problem=error.message)
    info = node.info
    return NodeCheck(
        node.host,
        store_problem=problem,
        python=info.python if info else "",
        version=info.version if info else "",
        versions=info.versions if info else {},
    )
