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
        over: list[RunRecord] = []
        for record, committed in waiting:
            if committed is None or (committed.done() and committed.exception() is None):
                over.append(record)
            else:
                self._waiting.append((record, committed))
        for node in self._nodes.ready() if over else ():
            # one that does not answer is told when it does (``reconciliation.py``)
            runs = [record.run for record in over if node.host in record.view.hosts] if node.reachable else []
            try:
                await self._nodes.forget(node.node, runs)
            except ClusterError as error:
                log.info("%d runs are not forgotten: %s", len(runs), error.message)
