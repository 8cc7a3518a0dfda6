"""Agents of nodes: found or created, connected with, and asked together."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
from collections.abc import Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...errors import ClusterError
from ...host.background import BackgroundWork
from ...host.unix_socket_calls import LocalConnection, answering_for
from ...protocol.config import GatewayConfig, StoreMode
from ...protocol.node import AgentConfig, AttemptId, GatewayApi, calls_socket
from ...protocol.wire import encode
from .nodes import Node, NodeTable
from .ray_calls import RayCalls

log = logging.getLogger(__name__)
#: for the import of the agent's code, and Ray's word
_MADE_S = 60.0
#: a connection that breaks sooner would only break again
_LASTS_S = 0.5


class AgentFactory:
    """Finds or creates the agent of each alive node; it introduces itself with ``node_up``.

    ``api``: what agents call.
    """

    def __init__(self, config: GatewayConfig, calls: RayCalls, nodes: NodeTable, api: GatewayApi | None = None) -> None:
        self._config = config
        self._calls = calls
        self._nodes = nodes
        self._api = api
        self._spawn = BackgroundWork().spawn

    async def ensure_agents(self) -> None:
        """Have an agent on each alive node; one that cannot be made is the node's problem, in words.

        All are asked at the same time: silent nodes keep the others waiting once.
        """
        missing = [node for node in self._nodes.alive() if node.agent is None and not node.is_asleep]
        await asyncio.gather(*(self._ensure_agent(node) for node in missing))

    async def _ensure_agent(self, node: Node) -> None:
        try:
            node.agent = await self._calls.answer(self._calls.begin(self._find_or_create, node), _MADE_S)
        except (ClusterError, ImportError, AttributeError) as error:
            node.problem = f"no agent on node {node.host}: {error}"
            log.error("%s", node.problem)

    async def connect(self, node: Node) -> None:
        """Connect with the agent that is there now, if it is on this host. Others are called through Ray.

        A connection that breaks is made again at once, and else at the next look at nodes.
        """
        if self._api is None or (node.connection is not None and node.connection.is_open):
            return
        loop, answering = asyncio.get_running_loop(), answering_for(self._api, GatewayApi)
        began_s = loop.time()

        def on_close(closed: LocalConnection) -> None:
            if node.connection is closed and loop.time() - began_s > _LASTS_S:
                self._connect_again(node)

        with contextlib.suppress(OSError):
            _, node.connection = await loop.create_unix_connection(
                lambda: LocalConnection(answering, on_close=on_close), calls_socket(self._config.runtime, node.node)
            )

    def _connect_again(self, node: Node) -> None:
        self._spawn(self.connect(node))

    def _find_or_create(self, node: Node) -> Any:
        """Find the agent or create it, in a thread."""
        name = f"agent-{node.node}"
        namespace = self._config.ray_namespace
        with contextlib.suppress(ValueError):
            found = ray.get_actor(name, namespace=namespace)
            node.adopted = True
            return found
        module, _, attribute = self._config.agent_entry.partition(":")
        kind = getattr(importlib.import_module(module), attribute)
        options = {
            "name": name,
            "namespace": namespace,
            "lifetime": "detached",
            "num_cpus": 0,
            "max_restarts": -1,
            "max_concurrency": 1000,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node.node, soft=False),
            **runtime_env(self._config),
        }
        return ray.remote(kind).options(**options).remote(encode(self._agent_config()))

    def _agent_config(self) -> AgentConfig:
        config = self._config
        return AgentConfig(
            store=config.store,
            runtime=config.runtime,
            simulated=config.simulated,
            preload=config.preload,
            cluster=config.cluster,
            ray_namespace=config.ray_namespace,
            gateway_actor=config.gateway_actor,
            spool=config.spool,
            persist_memory_bytes=config.persist_memory_bytes,
            persist_bytes_per_s=config.persist_bytes_per_s,
            store_id=self._nodes.store_id,
            hash_seed=config.hash_seed,
            max_prepared=config.max_prepared,
            environments=config.environments,
            environment_index=config.environment_index,
            environment_wheels=config.environment_wheels,
            environment_source_builds=config.environment_source_builds,
            environment_timeout_s=config.environment_timeout_s,
            environment_retention_s=config.environment_retention_s,
            max_environments=config.max_environments,
            as_owners=config.store_mode == StoreMode.OWNER,
        )


def runtime_env(config: GatewayConfig) -> dict[str, Any]:
    """Actor options for a package that is not installed on the cluster; usually none."""
    if not config.python_path:
        return {}
    return {"runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(config.python_path)}}}


async def forget_runs(nodes: NodeTable, ended: Mapping[str, list[AttemptId]]) -> None:
    """Have nodes forget attempts, by node, all at the same time; what one that does not answer keeps is logged."""
    await asyncio.gather(*(_forget_on(nodes, node, found) for node, found in ended.items() if found))


async def _forget_on(nodes: NodeTable, node: str, ended: list[AttemptId]) -> None:
    try:
        await nodes.agent(node).forget_runs(ended)
    except ClusterError as error:
        log.info("%d attempts are not forgotten: %s", len(ended), error.message)


async def missing_imports(nodes: NodeTable, names: list[str]) -> list[str]:
    """The top-level packages in ``names`` that no node has (what a node was found to have is remembered).

    A node that does not answer may have them all.
    """
    ready = nodes.ready()
    if not names or not ready:
        return []
    lacking = await asyncio.gather(*(_missing_on(nodes, node, names) for node in ready))
    return sorted(set.intersection(*map(set, lacking)))


async def _missing_on(nodes: NodeTable, node: Node, names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in node.known_imports]
    if not unknown or not node.reachable:
        return []
    try:
        missing = await nodes.agent(node.node).missing_imports(unknown)
    except ClusterError as error:
        log.warning("%s", error.message)
        return []
    node.known_imports.update(set(unknown) - set(missing))
    return missing
