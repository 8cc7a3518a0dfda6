"""Names that a running cell asks its waiting kernel for: answers go through here, and those for kernels that are gone
are given here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from ...errors import ClusterError
from ...host.background import BackgroundWork
from ...protocol.fetch import Answer
from ...protocol.lineage import UsedInput
from ...protocol.session import Supply
from ...protocol.wire import encode
from ..cluster.nodes import NodeTable
from ..db import lineage
from ..db.writer import LedgerWriter
from ..runs.record import RunRecord

log = logging.getLogger(__name__)
_MOST_INPUTS = 100_000
_GONE = encode(Answer(error="the notebook's kernel is gone"))


class Fetches:
    """``is_there``: whether a session's kernel answers, or may come back soon."""

    def __init__(self, nodes: NodeTable, ledger: LedgerWriter, is_there: Callable[[str], bool]) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._is_there = is_there
        self._spawn = BackgroundWork().spawn

    def on_question(self, record: RunRecord, rank: int) -> None:
        """A rank waits for its kernel."""
        record.asking.add(rank)
        if not self._is_there(record.view.session):
            self._spawn(self.pass_on(record, rank, _GONE))

    def give_up(self, record: RunRecord) -> None:
        """The kernel of a run is gone for good, or for too long."""
        for rank in record.asking:
            self._spawn(self.pass_on(record, rank, _GONE))

    def supply(self, record: RunRecord, message: Supply) -> None:
        """The kernel answers; what the run got by it counts as its input."""
        if record.lease is None or record.state.is_terminal:
            return
        self._note(record, message.used)
        self._spawn(self.pass_on(record, message.rank, message.body))

    def _note(self, record: RunRecord, used: list[UsedInput]) -> None:
        known = {each.name for each in record.request.used}
        new = [each for each in used if each.name not in known]
        if new and len(known) + len(new) <= _MOST_INPUTS:
            request = record.request = msgspec.structs.replace(record.request, used=[*record.request.used, *new])
            self._ledger.write(partial(lineage.put_fetched, request=request))

    async def pass_on(self, record: RunRecord, rank: int, body: bytes) -> None:
        """Pass it on to the node that leads the run; a rank that hears nothing gives up by itself."""
        lease = record.lease
        if lease is None or record.state.is_terminal:
            return
        try:
            await self._nodes.agent(lease.slots[0].node).pass_answer(lease.attempt_id, rank, body)
        except ClusterError as error:
            log.warning("run %s: %s", record.run, error.message)
