"""``Node``, ``NodeTable``, calls to node agents."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...errors import ClusterError
from ...protocol.config import GatewayConfig
from ...protocol.events import Event
from ...protocol.lineage import Environment
from ...protocol.node import AgentConfig, GpuInfo, JoinOrder, NodeInfo, NodeRun, StartOrder
from ...protocol.states import LeaseState
from ...protocol.wire import decode, encode
from ...scheduling.snapshot import NodeState
from .lease import LeaseTable
from .ray_calls import RayCalls, first_line


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
    gpus = node.info.gpus if node.info is not None else []
    memories = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes]
    return NodeState(
        node=node.node, host=node.host, gpus_total=node.gpus,
        gpus_free=max(0, node.gpus - held.gpus - leases.external.get(node.node, 0)),
        cpus_total=node.cpus, cpus_free=max(0, node.cpus - held.cpus),
        gpus_coming=leases.held(node.node, LeaseState.RELEASING).gpus,
        memory_bytes=(node.info.memory_bytes if node.info is not None else 0) or node.memory_bytes,
        gpu_name=(gpus[0].name if gpus else "") or node.accelerator,
        gpu_memory_bytes=min(memories, default=0), labels=node.labels,
        schedulable=node.info is not None and node.reachable and not node.info.trouble,
        expected=not node.is_lost and not (node.info is not None and node.info.trouble), reason=_problem(node),
    )  # fmt: skip


log = logging.getLogger(__name__)
_CALL_S = 10.0
#: for the import of the agent's code, and Ray's word
_MADE_S = 60.0


@dataclass(frozen=True)
class AgentRequest:
    """A request to a node's agent, in the life that the agent had then."""

    node: str
    life: str
    answer: Any


class NodeTable:
    """All nodes that were ever alive in this gateway's life, by Ray's node id."""

    def __init__(self, config: GatewayConfig, calls: RayCalls) -> None:
        self._config = config
        self._calls = calls
        #: of the store that is meant, for agents that are made
        self.store_id = ""
        self._nodes: dict[str, Node] = {}
        #: called when nodes come or go
        self.on_change: Callable[[], None] = lambda: None

    @property
    def runtime(self) -> str:
        """The folder of the agents' sockets, on each node."""
        return self._config.runtime

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
        """Whether a node has not answered for so long that what is held there is held by nobody."""
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
                self._nodes[entry["NodeID"]] = node_of(entry)
            elif known is not None and known.alive and not entry["Alive"]:
                known.alive = False
                died.append(known)
        if died:
            self.on_change()
        return died

    def states(self, leases: LeaseTable) -> tuple[NodeState, ...]:
        """The nodes as the scheduling policy sees them."""
        return tuple(state_of(node, leases) for node in self.alive())

    # ------------------------------------------------------------------------------------------ agents
    async def ensure_agents(self) -> None:
        """Find or create the agent of each alive node; it introduces itself with ``node_up``."""
        for node in self.alive():
            if node.agent is None:
                try:
                    node.agent = await self._calls.answer(self._calls.begin(self._find_or_create, node), _MADE_S)
                except (ClusterError, ImportError, AttributeError) as error:
                    node.problem = f"no agent on node {node.host}: {error}"
                    log.error("%s", node.problem)

    def _find_or_create(self, node: Node) -> Any:
        name = f"agent-{node.node}"
        namespace = self._config.ray_namespace
        with contextlib.suppress(ValueError):
            found = ray.get_actor(name, namespace=namespace)
            node.adopted = True
            return found
        module, _, attribute = self._config.agent_entry.partition(":")
        kind = getattr(importlib.import_module(module), attribute)
        config = AgentConfig(
            store=self._config.store, runtime=self._config.runtime, simulated=self._config.simulated,
            preload=self._config.preload, cluster=self._config.cluster, ray_namespace=namespace,
            gateway_actor=self._config.gateway_actor, spool=self._config.spool,
            persist_memory_bytes=self._config.persist_memory_bytes,
            persist_bytes_per_s=self._config.persist_bytes_per_s, store_id=self.store_id,
            hash_seed=self._config.hash_seed,
        )  # fmt: skip
        options = {
            "name": name, "namespace": namespace, "lifetime": "detached", "num_cpus": 0, "max_restarts": -1,
            "max_concurrency": 1000, "scheduling_strategy": NodeAffinitySchedulingStrategy(node.node, soft=False),
            **runtime_env(self._config),
        }  # fmt: skip
        return ray.remote(kind).options(**options).remote(encode(config))

    def agent_of(self, node: str) -> Any:
        """The handle of a node's agent; raises :class:`ClusterError` when there is none."""
        found = self._nodes.get(node)
        if found is None or found.agent is None or not found.alive:
            raise ClusterError(f"node {node[:8]} has no agent")
        return found.agent

    async def call(self, node: str, method: str, *arguments: Any, timeout_s: float = _CALL_S) -> Any:
        """Call a method of a node's agent; raises :class:`ClusterError` when it cannot be reached in time."""
        return await self.answer(self._ask(node, method, *arguments), timeout_s)

    def _ask(self, node: str, method: str, *arguments: Any) -> AgentRequest:
        agent = self.agent_of(node)
        return AgentRequest(node, self._life(node), getattr(agent, method).remote(*arguments))

    async def answer(self, asked: AgentRequest, timeout_s: float = _CALL_S) -> Any:
        """Await what was asked of a node's agent; raises :class:`ClusterError` when it does not come in time.

        An agent that Ray cannot reach takes no runs until it is heard of again: each would be lost.
        """
        node = asked.node
        try:
            return await asyncio.wait_for(_awaited(asked.answer), timeout_s)
        except TimeoutError as error:
            raise ClusterError(f"the agent of node {node[:8]} did not answer within {timeout_s:g} s") from error
        except ray.exceptions.RayError as error:
            problem = f"the agent of node {node[:8]} failed: {first_line(error)}"
            if isinstance(error, ray.exceptions.ActorDiedError):
                self._nodes[node].agent = None  # made anew at the next look
            if isinstance(error, ray.exceptions.RayActorError) and self._life(node) == asked.life:
                self.note_silent(node, problem)
            raise ClusterError(problem) from error

    def _life(self, node: str) -> str:
        info = self._nodes[node].info
        return info.incarnation if info is not None else ""

    def start(self, node: str, order: StartOrder) -> AgentRequest:
        """Have a node start a run, once it knows the accelerators; await it with :meth:`answer`."""
        return self._ask(node, "start", encode(order))

    def note_silent(self, node: str, problem: str) -> None:
        """A node's agent does not answer: it takes no runs until it does."""
        if (found := self._nodes.get(node)) is not None:
            found.reachable, found.problem = False, problem
            found.silent_at = found.silent_at or time.time()

    def join(self, node: str, order: JoinOrder) -> AgentRequest:
        """Have a node lend ranks to a gang; await it with :meth:`answer`."""
        return self._ask(node, "join", encode(order))

    def abandon(self, node: str, run: str) -> None:
        """A run's lease came to nothing: the node forgets it, or ends it if it has begun."""
        with contextlib.suppress(ClusterError):
            self.agent_of(node).abandon.remote(run)

    async def signal(self, node: str, run: str, name: str) -> bool:
        """``interrupt`` or ``kill`` a run on its first node; False: that does not answer."""
        try:
            await self.call(node, "signal", run, name, "interrupted")
        except ClusterError as error:
            log.warning("run %s: %s", run, error.message)
            return False
        return True

    async def has_begun(self, node: str, run: str) -> bool:
        """Whether a run began there, also in an earlier life of the agent; raises :class:`ClusterError`."""
        return bool(await self.call(node, "has_begun", run))

    async def forget_unbegun(self, node: str, run: str) -> bool:
        """Have a node forget a run that has not begun; False: it may have; raises :class:`ClusterError`."""
        return bool(await self.call(node, "forget_unbegun", run))

    async def lends(self, node: str, run: str) -> bool:
        """Whether a node lends ranks to this gang; raises :class:`ClusterError`."""
        return bool(await self.call(node, "lends", run))

    async def runs(self, node: str) -> list[NodeRun]:
        """The runs of a node, as its agent knows them."""
        return decode(await self.call(node, "runs"), list[NodeRun])

    async def forget(self, node: str, runs: list[str]) -> None:
        """Tell a node's agent that the end of these runs is recorded."""
        if runs:
            await self.call(node, "forget", runs)

    async def events(self, node: str, run: str, after: int) -> list[Event]:
        """Recorded events of a run on its node."""
        return decode(await self.call(node, "events", run, after, timeout_s=30.0), list[Event])

    async def gpus(self, node: str) -> list[GpuInfo]:
        """A node's GPUs with their use now."""
        return decode(await self.call(node, "gpus", timeout_s=2.0), list[GpuInfo])

    async def missing_imports(self, names: list[str]) -> list[str]:
        """The top-level packages in ``names`` that no node has (what a node was found to have is remembered).

        A node that does not answer may have them all.
        """
        nodes = self.ready()
        if not names or not nodes:
            return []
        lacking = await asyncio.gather(*(self._missing_on(node, names) for node in nodes))
        return sorted(set.intersection(*map(set, lacking)))

    async def _missing_on(self, node: Node, names: list[str]) -> list[str]:
        unknown = [name for name in names if name not in node.known_imports]
        if not unknown or not node.reachable:
            return []
        try:
            missing: list[str] = await self.call(node.node, "missing_imports", unknown, timeout_s=5.0)
        except ClusterError as error:
            log.warning("%s", error.message)
            return []
        node.known_imports.update(set(unknown) - set(missing))
        return missing

    async def environment(self, node: str, imports: list[str]) -> Environment:
        """The packages that these top-level imports mean on a node."""
        return decode(await self.call(node, "environment", imports, timeout_s=30.0), Environment)


def runtime_env(config: GatewayConfig) -> dict[str, Any]:
    """Actor options for a package that is not installed on the cluster; usually none."""
    if not config.python_path:
        return {}
    return {"runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(config.python_path)}}}


async def _awaited(reference: Any) -> Any:
    return await reference
