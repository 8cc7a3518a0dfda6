"""``Node``, ``NodeTable``: the nodes that Ray reports, and what their agents said of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import ClusterError
from ...protocol.node import NodeInfo
from ...scheduling import workload as scheduling
from .agent_client import AgentClient, AgentListener


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
    #: Ray's handle of its agent
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
    #: why an admin has taken it out, in words; empty: it takes runs
    drained: str = ""
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


def is_expected(node: Node) -> bool:
    """Tell if a node takes runs, or will within a minute (its agent starts, or is silent since a moment ago)."""
    return not node.is_lost and not (node.info is not None and node.info.trouble)


def away_reason(node: Node) -> str:
    """The reason why a node that is expected takes no runs just now; empty when it does."""
    return node.drained or _problem(node) if is_expected(node) else ""


def scheduled_node(node: Node) -> scheduling.Node:
    """A node as the scheduling policy sees it."""
    gpus = node.info.gpus if node.info is not None else []
    memories = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    expected = is_expected(node)
    return scheduling.Node(
        name=node.node, gpus=node.gpus * scheduling.GPU, gpu_type=(gpus[0].name if gpus else "") or node.accelerator,
        gpu_memory_bytes=min(memories, default=0), cpus=node.cpus,
        memory_bytes=(node.info.memory_bytes if node.info is not None else 0) or node.memory_bytes,
        labels=tuple(sorted(node.labels.items())), schedulable=expected, reason="" if expected else _problem(node),
    )  # fmt: skip


class NodeListener(Protocol):
    """Hears of nodes, on the gateway's event loop, in the middle of a change: it must neither wait nor raise."""

    def on_nodes_changed(self) -> None:
        """Nodes are gone, as far as Ray knows."""


class NodeTable(AgentListener):
    """All nodes that were ever alive in this gateway's life, by Ray's node id."""

    def __init__(self, runtime: str, listener: NodeListener) -> None:
        self._listener = listener
        #: the folder of the agents' sockets, on each node
        self.runtime = runtime
        #: of the store that is meant, for agents that are made
        self.store_id = ""
        self._nodes: dict[str, Node] = {}
        #: hosts that an admin has taken out, and why, in words
        self._drained: dict[str, str] = {}

    def alive(self) -> list[Node]:
        """The nodes that Ray reports alive."""
        return [node for node in self._nodes.values() if node.alive]

    def ready(self) -> list[Node]:
        """Alive nodes whose agent has introduced itself."""
        return [node for node in self.alive() if node.info is not None]

    def find(self, node: str) -> Node | None:
        """A node by its id."""
        return self._nodes.get(node)

    def is_lost(self, node: str) -> bool:
        """Tell if a node has not answered for so long that what is held there is held by nobody."""
        found = self._nodes.get(node)
        return found is not None and found.is_lost

    def totals(self) -> dict[str, int]:
        """GPUs of each alive node."""
        return {node.node: node.gpus for node in self.alive()}

    def refresh(self, entries: list[dict[str, Any]]) -> list[Node]:
        """Take in ``ray.nodes()``; returns the nodes that died since."""
        died = []
        for entry in entries:
            known = self._nodes.get(entry["NodeID"])
            if known is None and entry["Alive"]:
                known = self._nodes[entry["NodeID"]] = node_of(entry)
                known.drained = self._drained.get(known.host, "")
            elif known is not None and known.alive and not entry["Alive"]:
                known.alive = False
                died.append(known)
        if died:
            self._listener.on_nodes_changed()
        return died

    def note_drained(self, hosts: dict[str, str]) -> None:
        """Give these hosts no runs, also when they come later; the others take runs again."""
        self._drained = hosts
        for node in self._nodes.values():
            node.drained = hosts.get(node.host, "")

    def scheduled(self) -> tuple[scheduling.Node, ...]:
        """The nodes as the scheduling policy sees them."""
        return tuple(scheduled_node(node) for node in self.alive())

    # ------------------------------------------------------------------------------------------ agents
    def agent(self, node: str) -> AgentClient:
        """The agent of a node, to be called; raises :class:`ClusterError` when there is none."""
        return AgentClient(node, self._handle(node), self)

    def _handle(self, node: str) -> Any:
        found = self._nodes.get(node)
        if found is None or found.agent is None or not found.alive:
            raise ClusterError(f"node {node[:8]} has no agent")
        return found.agent

    def life_of(self, node: str) -> str:
        """The life of a node's agent as it last introduced itself."""
        info = self._nodes[node].info
        return info.incarnation if info is not None else ""

    def on_agent_died(self, node: str) -> None:
        """Have the agent made anew at the next look."""
        self._nodes[node].agent = None

    def on_agent_unreachable(self, node: str, life: str, problem: str) -> None:
        """Give the node no runs, unless a newer life of its agent was heard of meanwhile."""
        if self.life_of(node) == life:
            self.note_silent(node, problem)

    def note_silent(self, node: str, problem: str) -> None:
        """A node's agent does not answer: it takes no runs until it does."""
        if (found := self._nodes.get(node)) is not None:
            found.reachable, found.problem = False, problem
            found.silent_at = found.silent_at or time.time()
