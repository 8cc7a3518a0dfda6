"""Tells the gateway what happens on this node: in order, at least once, across the gateway's restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from ray.exceptions import RayError

from ..core.messages import encode
from ..core.node_messages import AgentConfig, NodeMessage, NodeReport

_RETRY_S = 0.1
_BATCH_MESSAGES = 256


class Reporter:
    """A queue of messages and the task that sends them."""

    def __init__(self, config: AgentConfig, node: str, incarnation: str) -> None:
        self._config = config
        self._node = node
        self._incarnation = incarnation
        self._queue: list[NodeMessage] = []
        self._wake = asyncio.Event()
        self._gateway: Any = None

    def tell(self, message: NodeMessage) -> None:
        """Queue one message; never blocks."""
        self._queue.append(message)
        self._wake.set()

    async def run(self) -> None:
        """Send for ever; what was not acknowledged is sent again."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch = self._queue[:_BATCH_MESSAGES]
                await self._deliver("node_report", encode(NodeReport(self._node, self._incarnation, batch)))
                del self._queue[: len(batch)]

    async def introduce(self, info: bytes) -> None:
        """Tell the gateway that this agent is here."""
        await self._deliver("node_up", info)

    async def _deliver(self, method: str, body: bytes) -> None:
        while True:
            try:
                if self._gateway is None:
                    self._gateway = ray.get_actor(self._config.gateway_actor, namespace=self._config.ray_namespace)
                await getattr(self._gateway, method).remote(body)
                return
            except (RayError, ValueError):  # the gateway restarts (or does not exist yet): look it up again
                self._gateway = None
                await asyncio.sleep(_RETRY_S)
