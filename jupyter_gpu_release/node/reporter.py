"""Tells the gateway what happens on this node: in order, at least once, across the gateway's restarts.

Each report is a call through Ray, 1–2 ms of each side's cores, so messages close together share one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from ray.exceptions import RayError

from ..core.messages import encode
from ..core.node_messages import AgentConfig, NodeMessage, NodeReport, RunPhase

_RETRY_S = 0.1
#: so long after a report the next one is due: of output, and of what nobody waits for
_OUTPUT_S, _PATIENT_S = 0.03, 0.05
_BATCH_MESSAGES = 256


class Reporter:
    """A queue of messages and the task that sends them."""

    def __init__(self, config: AgentConfig, node: str, incarnation: str) -> None:
        self._config = config
        self._node = node
        self._incarnation = incarnation
        self._queue: list[NodeMessage] = []
        self._wake = asyncio.Event()
        self._due: asyncio.TimerHandle | None = None
        self._sent_s = 0.0
        self._gateway: Any = None

    def tell(self, message: NodeMessage) -> None:
        """Queue one message; never blocks."""
        self._queue.append(message)
        loop = asyncio.get_running_loop()
        due_s = self._sent_s + _apart_s(message)
        if due_s <= loop.time():
            self._wake.set()
        elif self._due is None or due_s < self._due.when():
            self._forget_due()
            self._due = loop.call_at(due_s, self._wake.set)

    async def run(self) -> None:
        """Send for ever; what was not acknowledged is sent again."""
        while True:
            await self._wake.wait()
            self._begin()
            for _ in range(0, len(self._queue), _BATCH_MESSAGES):
                batch = self._queue[:_BATCH_MESSAGES]
                await self._deliver("node_report", encode(NodeReport(self._node, self._incarnation, batch)))
                del self._queue[: len(batch)]

    def _begin(self) -> None:
        self._wake.clear()
        self._sent_s = asyncio.get_running_loop().time()
        self._forget_due()

    def _forget_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

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


def _apart_s(message: NodeMessage) -> float:
    if isinstance(message, RunPhase):  # the next run waits for these GPUs, and a person for what the cell left
        return 0.0 if message.phase in ("leaving", "released") else _PATIENT_S
    return _OUTPUT_S
