"""Runs that are over, until the agents that ran them have forgotten them."""

from __future__ import annotations

import asyncio
import logging

from ..errors import ClusterError
from .nodes import NodeTable
from .runs import RunRecord

log = logging.getLogger(__name__)


class FinishedRuns:
    """Ended runs that their agents still remember, with the commit of their end."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._waiting: list[tuple[RunRecord, asyncio.Future[None] | None]] = []

    def add(self, record: RunRecord, committed: asyncio.Future[None] | None) -> None:
        """A run has ended; None: there is nothing to commit."""
        self._waiting.append((record, committed))

    async def forget(self) -> None:
        """Let agents forget runs whose end is committed (called every few seconds)."""
        waiting, self._waiting = self._waiting, []
        for record, committed in waiting:
            if committed is not None and not committed.done():
                self._waiting.append((record, committed))
                continue
            for node in self._nodes.ready():
                if node.host in record.view.hosts:
                    try:
                        await self._nodes.call(node.node, "forget", record.run)
                    except ClusterError as error:
                        log.info("run %s: %s", record.run, error.message)
