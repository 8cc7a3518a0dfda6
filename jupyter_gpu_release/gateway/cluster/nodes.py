"""``Node``, ``NodeTable``: the nodes that Ray reports, and what their agents said of them."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import ClusterError
from ...host.slurm import JOB_LABEL
from ...host.unix_socket_calls import LocalConnection
from ...protocol.node import AGENT_PROTOCOL, NodeInfo
from ...scheduling import workload as scheduling
from ...scheduling.decisions import Slot
from .agent_client import AgentClient, AgentListener

#: Ray's mark of the head node, among its resources
_HEAD = "node:__internal_head__"
#: before a node ends, for saves and for what is left behind
LAST_S = 120.0
#: steps of the time that is left, and until when there are finer ones
_COARSE_S, _FINE_S = 300.0, 1800.0
#: ports in ``ray.nodes()``
_RAY_PORTS = {"NodeManagerPort": "Ray's node manager", "ObjectManagerPort": "Ray's object manager"}


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
    #: where its other processes are reached by other nodes, and Ray's ports there: port → what listens
    address: str = ""
    ray_ports: dict[int, str] = field(default_factory=dict)
    alive: bool = True
    #: Ray's handle of its agent
    agent: Any = None
    #: to an agent on the gateway's own host; a closed one counts for nothing
    connection: LocalConnection | None = None
    #: the agent was there before this gateway, so it must be asked who it is
    adopted: bool = False
    info: NodeInfo | None = None
    #: how far its clock is before ours, in seconds
    clock_ahead_s: float = 0.0
    #: False while its agent does not answer (it is being restarted)
    reachable: bool = True
    #: why it has no working agent, or cannot take runs, in words
    problem: str = ""
    #: since when its agent does not answer (monotonic: a clock that is set gives no node up)
    silent_since_s: float | None = None
    #: it did not answer for so long that its runs are lost; it takes none before what still runs there is ended
    is_lost: bool = False
    #: where the gateway is; an autoscaler never ends it
    is_head: bool = False
    #: its agent was ended, as nothing is to do there: Ray ends no node with an actor on it
    is_asleep: bool = False
    #: it is about to end
    is_leaving: bool = False
    #: when it ends (monotonic), where its lender says so
    ends_s: float | None = None
    #: why an admin has taken it out, in words; empty: it takes runs
    drained: str = ""
    #: the same of single GPUs, by the ids that Ray gives them: by an admin, and because they are not well
    drained_gpus: dict[str, str] = field(default_factory=dict)
    unwell_gpus: dict[str, str] = field(default_factory=dict)
    #: why it takes no runs for a moment: one of these is about to be set aside
    taking: str = ""
    known_imports: set[str] = field(default_factory=set)

    @property
    def gpu_ids(self) -> list[str]:
        """The ids that Ray gives its GPUs; numbers until its agent has said them (an older one may never do)."""
        told = self.info.gpus if self.info is not None else []
        return [gpu.index for gpu in told] or [str(index) for index in range(self.gpus)]

    @property
    def aside(self) -> dict[str, str]:
        """GPUs that get no runs, and why. Others of the machine than Ray gives are none of its GPUs."""
        out = {**self.unwell_gpus, **self.drained_gpus}
        return {gpu: out[gpu] for gpu in self.gpu_ids if gpu in out} if out else out


def node_of(entry: dict[str, Any]) -> Node:
    """A node as ``ray.nodes()`` lists it."""
    resources = entry["Resources"]
    accelerator = next((name[17:] for name in resources if name.startswith("accelerator_type:")), "")
    return Node(
        node=entry["NodeID"],
        host=entry["NodeManagerHostname"],
        gpus=int(resources.get("GPU", 0)),
        cpus=int(resources.get("CPU", 0)),
        memory_bytes=int(resources.get("memory", 0)),
        accelerator=accelerator,
        labels=dict(entry.get("Labels") or {}),
        is_head=_HEAD in resources,
        address=entry.get("NodeManagerAddress", ""),
        ray_ports={entry[key]: what for key, what in _RAY_PORTS.items() if entry.get(key)},
    )


def _problem(node: Node) -> str:
    if node.info is None:
        return f"the node agent on {node.host} is still starting"
    if node.is_leaving:
        return f"the node {node.host} is about to end"
    if node.is_asleep:
        return f"the node {node.host} was idle, and its agent is started again"
    if not node.reachable:
        return f"the node {node.host} does not answer" + ("" if node.is_lost else ", or its agent is being restarted")
    return f"{node.host}: {node.info.trouble}" if node.info.trouble else ""


def is_expected(node: Node) -> bool:
    """Tell if a node takes runs, or will within a minute (its agent starts, or is silent since a moment ago). One that
    is lent, and drained, never does: another one comes for it.
    """
    is_out = node.is_lost or node.is_leaving or (node.drained and JOB_LABEL in node.labels)
    return not is_out and not (node.info is not None and node.info.trouble)


def away_reason(node: Node) -> str:
    """The reason why a node that is expected takes no runs just now; empty when it does."""
    return node.drained or node.taking or _problem(node) if is_expected(node) else ""


def left_s(node: Node) -> float:
    """Time that a run may still have on a node, coarse: each change has the scheduler made anew."""
    if node.ends_s is None:
        return math.inf
    return coarse(node.ends_s - time.monotonic() - LAST_S)


def coarse(left: float) -> float:
    """Round time that is left down."""
    if left == math.inf:
        return left
    step = _COARSE_S if left > _FINE_S else _COARSE_S / 5
    return max(0.0, left // step * step)


def _gpu_type(node: Node) -> str:
    """The name of its GPUs: one that was never well has none."""
    return next((gpu.name for gpu in node.info.gpus if gpu.name), "") if node.info is not None else ""


def scheduled_node(node: Node) -> scheduling.Node:
    """A node as the scheduling policy sees it."""
    gpus = node.info.gpus if node.info is not None else []
    memories = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    expected = is_expected(node)
    return scheduling.Node(
        name=node.node,
        gpus=node.gpus * scheduling.GPU,
        gpu_type=_gpu_type(node) or node.accelerator,
        gpu_memory_bytes=min(memories, default=0),
        cpus=node.cpus,
        memory_bytes=(node.info.memory_bytes if node.info is not None else 0) or node.memory_bytes,
        labels=tuple(sorted(node.labels.items())),
        schedulable=expected,
        reason="" if expected else node.drained or _problem(node),
        knows_attempts=node.info is None or node.info.protocol >= AGENT_PROTOCOL,
        left_s=left_s(node),
    )


class NodeListener(Protocol):
    """Hears of nodes, on the gateway's event loop, in the middle of a change: it must neither wait nor raise."""

    def on_nodes_changed(self) -> None:
        """Nodes are gone, as far as Ray knows."""


class NodeTable(AgentListener):
    """The nodes that were alive in this gateway's life and that Ray remembers, by Ray's node id."""

    def __init__(self, runtime: str, listener: NodeListener) -> None:
        self._listener = listener
        #: the folder of the agents' sockets, on each node
        self.runtime = runtime
        #: of the store that is meant, for agents that are made
        self.store_id = ""
        self._nodes: dict[str, Node] = {}
        #: hosts, and GPUs as ``host:id``, that an admin has taken out, and why, in words
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

    def hosts_of(self, slots: Iterable[Slot]) -> list[str]:
        """The hosts of these slots' nodes."""
        return [found.host for slot in slots if (found := self._nodes.get(slot.node)) is not None]

    def is_lost(self, node: str) -> bool:
        """Tell if a node has not answered for so long that what is held there is held by nobody."""
        found = self._nodes.get(node)
        return found is not None and found.is_lost

    def totals(self) -> dict[str, int]:
        """GPUs of each alive node."""
        return {node.node: node.gpus for node in self.alive()}

    def refresh(self, entries: list[dict[str, Any]]) -> list[Node]:
        """Take in ``ray.nodes()``; returns the nodes that died since. Those that Ray has forgotten are forgotten."""
        died, listed = [], {entry["NodeID"] for entry in entries}
        for name in [name for name, node in self._nodes.items() if not node.alive and name not in listed]:
            del self._nodes[name]
        for entry in entries:
            known = self._nodes.get(entry["NodeID"])
            if known is None and entry["Alive"]:
                known = self._nodes[entry["NodeID"]] = node_of(entry)
                self._apply_drains(known)
            elif known is not None and known.alive and not entry["Alive"]:
                known.alive = False
                died.append(known)
        if died:
            self._listener.on_nodes_changed()
        return died

    def note_leaving(self, leaving: Collection[str]) -> None:
        """Give these nodes no runs: Ray is about to end them."""
        for node in self._nodes.values():
            node.is_leaving = node.node in leaving

    def note_drained(self, drained: dict[str, str]) -> None:
        """Give these hosts and GPUs no runs, also when they come later; the others take runs again."""
        self._drained = drained
        for node in self._nodes.values():
            self._apply_drains(node)

    def _apply_drains(self, node: Node) -> None:
        node.drained = self._drained.get(node.host, "")
        here = f"{node.host}:"
        node.drained_gpus = {name[len(here) :]: why for name, why in self._drained.items() if name.startswith(here)}

    def is_aside(self, node: str, gpus: Iterable[str]) -> bool:
        """Tell if one of these GPUs of a node is to get no runs."""
        found = self._nodes.get(node)
        return found is not None and not found.aside.keys().isdisjoint(gpus)

    def scheduled(self) -> tuple[scheduling.Node, ...]:
        """The nodes as the scheduling policy sees them."""
        return tuple(scheduled_node(node) for node in self.alive())

    # ------------------------------------------------------------------------------------------ agents
    def agent(self, node: str) -> AgentClient:
        """The agent of a node, to be called; raises :class:`ClusterError` when there is none."""
        found = self._nodes.get(node)
        if found is None or found.agent is None or not found.alive:
            raise ClusterError(f"node {node[:8]} has no agent")
        return AgentClient(node, found.agent, self, found.connection)

    def life_of(self, node: str) -> str:
        """The life of a node's agent as it last introduced itself."""
        info = self._nodes[node].info
        return info.incarnation if info is not None else ""

    def protocol_of(self, node: str) -> int:
        """The protocol of a node's agent; of one that has not introduced itself yet it is taken to be ours."""
        info = self._nodes[node].info
        return info.protocol if info is not None else AGENT_PROTOCOL

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
            found.silent_since_s = found.silent_since_s or time.monotonic()
