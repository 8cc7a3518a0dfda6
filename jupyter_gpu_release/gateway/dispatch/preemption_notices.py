"""``PreemptionNotices``: runs are asked to step aside, and ended when their grace is over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ...errors import ClusterError, ConflictError
from ...protocol.node import RunStays
from ...protocol.runs import StepAside
from ...scheduling.decisions import Grow, MakeRoom, Yield
from ...scheduling.reasons import explain
from ..cluster.nodes import NodeTable
from ..queue_rules import QueueRules
from ..runs.live_runs import RunTable
from ..runs.record import Queued, Running, RunRecord, Yielding

log = logging.getLogger(__name__)
#: a node that has not taken its message is told again
_AGAIN_S = 1.0
#: a run that cannot step aside just now is not asked by the scheduler for so long
_SPARED_S = 60.0


class PreemptionNotices:
    """Has restartable runs step aside. ``on_stays``: one will not (with the notice that it had, if any)."""

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        rules: QueueRules,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_stays: Callable[[RunRecord, StepAside | None], None],
    ) -> None:
        self._runs = runs
        self._nodes = nodes
        self._rules = rules
        self._spawn = spawn
        self._on_stays = on_stays

    def require_possible(self, record: RunRecord) -> None:
        """Raise :class:`ConflictError` for a run that cannot be asked now."""
        view = record.view
        if not view.restartable:
            raise ConflictError(
                f"run {record.run} cannot step aside: it is not restartable", hint="give its cell --restartable"
            )
        if view.stays:
            raise ConflictError(f"run {record.run} cannot step aside: {view.stays}", hint="wait for its end, or end it")
        if isinstance(record.stage, Yielding):
            return
        if not record.may_be_asked:
            raise ConflictError(
                f"run {record.run} does not run now ({record.state.word})", hint="`jupyter gpu status` shows it"
            )

    def give_notice(self, record: RunRecord, action: str, reason: str, *, run: str = "", user: str = "") -> None:
        """Ask a run to step aside; nothing happens to one that was asked already.

        Raises :class:`ConflictError` for a run that cannot be asked.
        """
        self.require_possible(record)
        if isinstance(record.stage, Yielding):
            return
        now_s = time.time()
        grace_s = self._rules.file.tree.queues[record.view.queue].grace_s
        notice = StepAside(action, reason, now_s, now_s + grace_s, run, user)
        log.info("run %s is asked to step aside: %s", record.run, reason)
        self._runs.change(record, Yielding(record.lease, notice), at_once=True, notice=notice, reason=reason)
        self.carry_out(record)

    def make_room(self, room: MakeRoom) -> bool:
        """Ask all runs that shall step aside for another; False: one of them cannot be asked, so nobody is."""
        records = [self._runs.get(asked.run) for asked in room.yields]
        if any(record is None or not record.may_be_taken for record in records):
            return False
        for record, asked in zip(records, room.yields, strict=True):
            if record is not None:
                reason = explain(asked).partition(": ")[2] + self._to_hosts(asked)
                self.give_notice(record, asked.action, reason, run=asked.beneficiary, user=asked.user)
        return True

    def _to_hosts(self, asked: Yield) -> str:
        """The nodes that a run is moved to, as people call them."""
        found = [self._nodes.find(node) for node in dict.fromkeys(node for _, node in asked.moves)]
        return f" to {', '.join(node.host for node in found if node is not None)}" if any(found) else ""

    def grow(self, grow: Grow) -> bool:
        """Ask an elastic run to step aside, since it can go on with more GPUs. False: it cannot be asked now."""
        record = self._runs.get(grow.run)
        if record is None or not record.may_be_taken:
            return False
        gpus = record.view.gpus + sum(slot.gpus for slot in grow.placement)
        self.give_notice(record, "grow", f"to go on with {gpus} GPUs")
        return True

    def carry_out(self, record: RunRecord) -> None:
        """Tell its node, once more after a restart, and end the run when the grace is over."""
        if isinstance(record.stage, Yielding):
            self._spawn(self._carry_out(record, record.stage.notice))

    async def _carry_out(self, record: RunRecord, notice: StepAside) -> None:
        is_told = await self._tell(record, notice)
        while self._is_due(record, notice):
            left_s = notice.deadline - time.time()
            if left_s <= 0:
                await self._end(record, notice)
            await asyncio.sleep(_AGAIN_S if left_s <= 0 else min(_AGAIN_S, left_s))
            if not is_told and self._is_due(record, notice):
                is_told = await self._tell(record, notice)

    def _is_due(self, record: RunRecord, notice: StepAside) -> bool:
        return isinstance(record.stage, Yielding) and record.stage.notice is notice

    async def _tell(self, record: RunRecord, notice: StepAside) -> bool:
        if record.lease is None:
            return False
        try:
            is_taken = await self._nodes.agent(record.lease.slots[0].node).step_aside(record.attempt_id)
        except ClusterError as error:
            log.warning("run %s has not heard its notice: %s", record.run, error.message)
            return False
        if not is_taken:
            self._spawn(self._give_up(record, notice))
        return True

    async def _give_up(self, record: RunRecord, notice: StepAside) -> None:
        """It will not step aside: its node says why, most often, or it is at its end."""
        await asyncio.sleep(_AGAIN_S)
        if self._is_due(record, notice):
            reason = "it has no place to stop at any more"
            self.on_stays(record, RunStays(record.attempt_id, reason, for_now=True))

    async def _end(self, record: RunRecord, notice: StepAside) -> None:
        """Its grace is over: it goes on from its last save. Nobody needs its GPUs any more: it goes on as it is.

        One that its user has interrupted ends by that, with what it has.
        """
        if record.lease is None or record.cancellation.reason:
            return
        if not self._is_needed(notice):
            log.info("run %s need not step aside any more", record.run)
            self._go_on(record, notice)
            return
        log.warning("run %s has not stepped aside in time: it is ended", record.run)
        try:
            await self._nodes.agent(record.lease.slots[0].node).signal(record.attempt_id, "kill", "preempted")
        except ClusterError as error:
            log.warning("run %s: %s", record.run, error.message)

    def _is_needed(self, notice: StepAside) -> bool:
        """Tell if the run that is to have the GPUs still waits; one that a user has asked frees them for anybody."""
        waits = self._runs.get(notice.run) if notice.run else None
        return not notice.run or (waits is not None and isinstance(waits.stage, Queued))

    def _go_on(self, record: RunRecord, notice: StepAside, reason: str = "", **facts: Any) -> None:
        self._runs.change(record, Running(record.lease), notice=None, reason=reason, **facts)
        self._on_stays(record, notice)

    def _fix_size(self, record: RunRecord, reason: str) -> None:
        """It steps aside like others, and goes on with as many GPUs as it has now: so a ``most_gpus`` of 0 says."""
        if record.request.ask.min_gpus is not None:
            log.info("run %s is neither grown nor shrunk: %s", record.run, reason)
            record.fix_size()
            self._runs.change(record, at_once=True, most_gpus=0)

    def on_stays(self, record: RunRecord, message: RunStays) -> None:
        """A run will not step aside: it goes on, and its user is told why."""
        if message.attempt_id != record.attempt_id or record.state.is_terminal:
            return
        if message.of_size:
            self._fix_size(record, message.reason)
            return
        facts: dict[str, Any] = {} if message.for_now else {"stays": message.reason}
        if isinstance(record.stage, Yielding):
            notice = record.stage.notice
            reason = f"it was asked to step aside, and cannot now: {message.reason}" if message.for_now else ""
            log.info("run %s does not step aside: %s", record.run, message.reason)
            record.spared_until_s = time.monotonic() + _SPARED_S
            self._go_on(record, notice, reason, **facts)
        elif facts and record.view.stays != message.reason:
            self._runs.change(record, **facts)
            self._on_stays(record, None)
