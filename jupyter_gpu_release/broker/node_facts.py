"""What is known of one node, from Ray and from its agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core.node_messages import NodeInfo
from ..core.run import LeaseState
from ..scheduling.snapshot import NodeState
from .leases import LeaseTable


@dataclass
class Node:
    """One node of the cluster; ``info`` is None until its agent has introduced itself."""

    node: str
    host: str
    gpus: int
    cpus: int
    memory_bytes: int
    accelerator: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    alive: bool = True
    agent: Any = None
    #: the agent was there before this gateway, so it must be asked who it is
    adopted: bool = False
    info: NodeInfo | None = None
    #: False while its agent does not answer (it is being restarted)
    reachable: bool = True
    #: why it has no working agent, or cannot take runs, in words
    problem: str = ""
    #: since when its agent does not answer (unix seconds)
    silent_at: float | None = None
    #: it did not answer for so long that its runs are lost; it takes none before what still runs there is ended
    is_lost: bool = False
    #: runs whose users know that it does not answer
    told: set[str] = field(default_factory=set)
    known_imports: set[str] = field(default_factory=set)


def node_of(entry: dict[str, Any]) -> Node:
    """A node as ``ray.nodes()`` lists it."""
    resources = entry["Resources"]
    accelerator = next((name[17:] for name in resources if name.startswith("accelerator_type:")), "")
    return Node(
        node=entry["NodeID"], host=entry["NodeManagerHostname"], gpus=int(resources.get("GPU", 0)),
        cpus=int(resources.get("CPU", 0)), memory_bytes=int(resources.get("memory", 0)), accelerator=accelerator,
        labels=dict(entry.get("Labels") or {}),
    )  # fmt: skip


def _problem(node: Node) -> str:
    if node.info is None:
        return f"the node agent on {node.host} is still starting"
    if not node.reachable:
        return f"the node {node.host} does not answer" + ("" if node.is_lost else ", or its agent is being restarted")
    return f"{node.host}: {node.info.trouble}" if node.info.trouble else ""


def state_of(node: Node, leases: LeaseTable) -> NodeState:
    """A node as the scheduling policy sees it."""
    held = leases.held(node.node)
    cards = node.info.gpus if node.info is not None else []
    memories = [card.memory_bytes for card in cards if card.memory_bytes]
    return NodeState(
        node=node.node, host=node.host, gpus_total=node.gpus,
        gpus_free=max(0, node.gpus - held.gpus - leases.external.get(node.node, 0)),
        cpus_total=node.cpus, cpus_free=max(0, node.cpus - held.cpus),
        gpus_coming=leases.held(node.node, LeaseState.RELEASING).gpus,
        memory_bytes=(node.info.memory_bytes if node.info is not None else 0) or node.memory_bytes,
        gpu_name=(cards[0].name if cards else "") or node.accelerator,
        gpu_memory_bytes=min(memories, default=0), labels=node.labels,
        schedulable=node.info is not None and node.reachable and not node.info.trouble,
        expected=not node.is_lost and not (node.info is not None and node.info.trouble), reason=_problem(node),
    )  # fmt: skip
