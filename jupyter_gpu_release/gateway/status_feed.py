"""Changes of the status: a client that shows it waits here for the next change instead of asking again and again.

Changes close together are told as one: a run's start is four of them within milliseconds, and a sweep's are hundreds.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

from ..errors import ClusterError
from ..protocol.node import GpuInfo
from .auth.permissions import Caller
from .auth.tokens import TokenBook
from .cluster.nodes import Node, NodeTable

#: changes within this time are told together, and after one was told the next waits so long: at most 10 a second
GATHERED_S, APART_S = 0.01, 0.1
#: a request waits for a change so long at most
LONGEST_WAIT_S = 30.0


class StatusFeed:
    """Counts the changes that were told. ``serial`` names the latest; it differs after a restart of the gateway."""

    def __init__(self) -> None:
        self._life = secrets.token_hex(4)
        self._told = 0
        self._told_s = -APART_S
        self._due: asyncio.TimerHandle | None = None
        self._next = asyncio.Event()

    @property
    def serial(self) -> str:
        """The latest change that was told."""
        return f"{self._life}-{self._told}"

    def note_change(self) -> None:
        """Something changed that the status shows."""
        if self._due is None:
            loop = asyncio.get_running_loop()
            delay_s = max(GATHERED_S, self._told_s + APART_S - loop.time())
            self._due = loop.call_later(delay_s, self._tell)

    def _tell(self) -> None:
        self._due = None
        self._told += 1
        self._told_s = asyncio.get_running_loop().time()
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, serial: str, wait_s: float) -> None:
        """Wait until another change than ``serial`` is the latest, for ``wait_s`` seconds at most."""
        if serial == self.serial:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._next.wait(), min(wait_s, LONGEST_WAIT_S))

    async def after_for(self, caller: Caller, tokens: TokenBook, serial: str, wait_s: float) -> None:
        """Like :meth:`after`, and raises :class:`AuthenticationError` when the caller's token is over meanwhile."""
        waiting = asyncio.ensure_future(self.after(serial, wait_s))
        ending = asyncio.ensure_future(tokens.until_over(caller))
        try:
            await asyncio.wait([waiting, ending], return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                raise ending.result()
        finally:
            waiting.cancel()
            ending.cancel()


class GpuReadings:
    """The last answers of the nodes' agents about their GPUs: many who look at once ask an agent once."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._said: dict[str, tuple[float, list[GpuInfo]]] = {}
        self._asking: dict[str, asyncio.Future[list[GpuInfo]]] = {}

    async def readings_of(self, node: Node, most_age_s: float) -> list[GpuInfo]:
        """A node's GPUs as they were at most ``most_age_s`` seconds ago.

        When its agent does not answer, what it said when it introduced itself.
        """
        if node.info is None:
            return []
        said_s, gpus = self._said.get(node.node, (-most_age_s, []))
        if time.monotonic() - said_s < most_age_s:
            return gpus
        with contextlib.suppress(ClusterError):
            return await asyncio.shield(self._asked(node.node))
        return node.info.gpus

    def _asked(self, node: str) -> asyncio.Future[list[GpuInfo]]:
        asking = self._asking.get(node)
        if asking is None:
            asking = self._asking[node] = asyncio.ensure_future(self._ask(node))
            asking.add_done_callback(lambda done: (self._asking.pop(node), done.cancelled() or done.exception()))
        return asking

    async def _ask(self, node: str) -> list[GpuInfo]:
        gpus = await self._nodes.agent(node).gpus()
        self._said[node] = (time.monotonic(), gpus)
        return gpus
