"""The gateway as Ray knows it: its code is loaded where it runs, not where it is created (which takes 0.7 s)."""

from __future__ import annotations

import importlib

from ..protocol.node import GatewayApi, NodeInfo, NodeReport
from ..protocol.wire import Packed


class GatewayActor(GatewayApi):
    """The detached Ray actor; everything is done by :class:`.actor.Gateway`."""

    def __init__(self, config: bytes) -> None:
        self._gateway = importlib.import_module(f"{__package__}.actor").Gateway(config)

    async def describe(self) -> bytes:
        """JSON :class:`Deployed`: where the gateway is, or why it is not."""
        described: bytes = await self._gateway.describe()
        return described

    async def node_up(self, info: Packed[NodeInfo]) -> None:
        """A node agent introduces itself."""
        await self._gateway.node_up(info)

    async def node_report(self, report: Packed[NodeReport]) -> None:
        """Events and phases of runs; may be repeated."""
        await self._gateway.node_report(report)
