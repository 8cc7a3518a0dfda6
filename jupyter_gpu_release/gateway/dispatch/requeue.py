"""Runs that go on later: back to the queue, at their old age, with their last save."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from sqlalchemy.engine import Connection

from ...protocol.runs import Attempt, Outcome, RunView, Save
from ..cluster.agents import forget_runs
from ..cluster.nodes import NodeTable
from ..db.database import drop_save, put_save
from ..db.run_times import drop_attempt, put_attempt
from ..db.writer import LedgerWriter
from ..runs.attempts import brought_home, ended_attempt, goes_on, save_of
from ..runs.live_runs import RunTable
from ..runs.record import Persisting, Queued, Releasing, RunRecord

log = logging.getLogger(__name__)


class WaitingRuns(Protocol):
    """The queue, as far as runs that come back to it care. Called on the gateway's event loop."""

    def put_back(self, record: RunRecord, *, after_others: bool = False) -> None:
        """Have a run wait in its old place; it is not granted before :meth:`resume`. ``after_others``: those who wait
        get what is free.
        """

    def resume(self, record: RunRecord) -> None:
        """Go on with a run that was put back."""


class Requeue:
    """Takes runs back to the queue whose attempt has ended and that are not over."""

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        ledger: LedgerWriter,
        queue: WaitingRuns,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._runs = runs
        self._nodes = nodes
        self._ledger = ledger
        self._queue = queue
        self._spawn = spawn

    def goes_on(self, record: RunRecord, outcome: Outcome) -> bool:
        """Tell if another attempt follows one that ends so."""
        if record.is_abandoned or not isinstance(record.stage, Releasing | Persisting):
            return False
        return goes_on(record.request, record.view, outcome, record.cancellation.reason)

    def on_saved(self, record: RunRecord, save: Save) -> None:
        """A run was saved while it goes on. Of an attempt that another one follows already it comes too late."""
        is_late = save.attempt != record.attempt and not isinstance(record.stage, Queued)
        if record.state.is_terminal or is_late or (record.save is not None and record.save.number >= save.number):
            return
        record.save = save
        self._ledger.write(partial(put_save, run=record.run, save=save))
        self._runs.change(record, saved_at=save.at_s)

    def go_back(self, record: RunRecord, outcome: Outcome, gone_at: float) -> None:
        """An attempt has ended, and its GPUs are free: the run waits at its old place for the next one."""
        view, ended_id = record.view, record.attempt_id
        save = record.save = save_of(outcome) or record.save
        ended = ended_attempt(view, outcome, gone_at, save)
        nodes = [node.node for node in self._nodes.ready() if node.host in view.hosts and node.reachable]
        self._runs.reload(record)  # its cell was let go of when a node had it
        was_asked = view.notice is not None and view.notice.action == "request"
        self._runs.change(
            record,
            Queued(),
            also=partial(_put, view=view, ended=ended, save=save),
            attempts=[*view.attempts, ended],
            saved_at=save.at_s if save is not None else None,
            notice=None,
            reason="",
            granted_at=None,
            running_at=None,
            hosts=[],
            gpu_ids=[],
            gpu_name="",
            on_kept=False,
            waits_for=None,
            **record.shape_on(None),
        )
        if not isinstance(record.stage, Queued):  # refused
            return
        log.info("run %s goes on later (%s): %s", record.run, ended.status, ended.place or "from the beginning")
        record.begin_anew()
        # asked for whoever waits: at its age it would be next at once
        self._queue.put_back(record, after_others=was_asked)
        # a node that does not hear it forgets the attempt when it is compared with the ledger, or is given the next one
        self._spawn(forget_runs(self._nodes, {node: [ended_id] for node in nodes}))
        self._queue.resume(record)

    def home(self, record: RunRecord, outcome: Outcome) -> tuple[Outcome, dict[str, Any]]:
        """The outcome of a run that goes on no more, with its last save where it has nothing newer, and facts of it.

        One that ends while it waits for another attempt has ended with the one before.
        """
        view, facts = record.view, dict[str, Any]()
        if isinstance(record.stage, Queued) and view.attempts:
            last = view.attempts[-1]
            facts = {
                "attempts": view.attempts[:-1],
                "granted_at": last.granted_at,
                "running_at": last.running_at,
                "gone_at": last.gone_at,
                "hosts": last.hosts,
            }
            self._ledger.write(partial(drop_attempt, run=record.run, number=len(view.attempts) - 1))
        elif isinstance(record.stage, Persisting) and record.stage.gone_at is not None:
            facts = {"gone_at": record.stage.gone_at}  # it was cancelled while it was saved
        if record.save is not None:
            outcome = brought_home(outcome, record.save)
            self._ledger.write(partial(drop_save, run=record.run))
        return outcome, facts


def _put(connection: Connection, view: RunView, ended: Attempt, save: Save | None) -> None:
    put_attempt(connection, view, ended)
    if save is not None:
        put_save(connection, view.run, save)


def freed_at(record: RunRecord, gone_at: float | None = None) -> float:
    """The time when the GPUs of an attempt were free."""
    known = record.stage.gone_at if isinstance(record.stage, Persisting) else None
    return known or gone_at or time.time()
