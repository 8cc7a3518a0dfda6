"""Runs one cell in the shell under an event loop, as ipykernel does: top-level await, tasks, interrupts."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass, field
from typing import Any

from ...adapters.stdlib.environment import SignalHandlers
from ...analysis import sources
from ...protocol.cell import CellPayload
from .left_threads import LeftThreads
from .resuming.preempted import Preempted
from .shell import RankShell

#: how long tasks that the cell started and did not await may go on
LEFT_OVER_S = 5.0
_NOT_THERE = "not in the notebook, nor in further cells: put what sets it under `%%gpu_setup`"
#: several statements, as cells have; leaves no name behind
_WARM_UP = """
import time, sys; warm = 1
for warm in range(2):
    print(end=str(warm)[:0])
del warm, time, sys
None
"""


@dataclass
class CellEnd:
    """The end of a cell: its exception (None: well) and whether an interrupt caused it."""

    error: BaseException | None = None
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)


class CellLoop:
    """An event loop for one cell."""

    def __init__(self, shell: RankShell) -> None:
        self._shell = shell
        #: of the cell: numpy's print options, among others, belong to it
        self.context = contextvars.copy_context()
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._cell: asyncio.Task[BaseException | None] | None = None
        self._cancelled = False
        shell.hidden_codes.add(CellLoop._on_interrupt.__code__)

    @property
    def descriptors(self) -> frozenset[int]:
        """The open files that it needs."""
        return frozenset(pair.fileno() for pair in (self._loop._ssock, self._loop._csock))  # type: ignore[attr-defined]

    def warm_up(self) -> None:
        """Run a small cell: touches the pages that a cell writes to, before anybody waits for it."""
        for _ in range(2):
            self._loop.run_until_complete(self._execute(CellPayload(source=_WARM_UP)))

    def run(self, payload: CellPayload) -> CellEnd:
        """Run the cell's source; never raises."""
        end = CellEnd()
        self.context = contextvars.copy_context()
        signal_handlers = SignalHandlers()
        signal_handlers.notes(_NOT_THERE)
        threads = LeftThreads()
        self._cell = self._loop.create_task(self._execute(payload), context=self.context)
        if "await" in payload.source or "async" in payload.source:
            self._shell.gate.handler = self._on_interrupt
        try:
            try:
                end.error = self._loop.run_until_complete(self._cell)
                end.notes += self._finish_tasks()
                end.notes += threads.notes()
            finally:
                self._shell.gate.close()
        except BaseException as error:  # noqa: BLE001 - an interrupt before the first or after the last statement
            end.error = error
            self._shell.gate.close()  # it may have struck just before that was done
        end.notes += signal_handlers.notes(_NOT_THERE)
        end.interrupted = isinstance(end.error, KeyboardInterrupt) or (
            self._cancelled and isinstance(end.error, asyncio.CancelledError)
        )
        return end

    def _on_interrupt(self, _number: int, _frame: object) -> None:
        """Raise where a task runs; elsewhere (inside the event loop) end the cell at its `await`.

        Raising inside the loop's own code could lose a callback, and the cell would wait for ever.
        """
        if asyncio.current_task(self._loop) is None and self._cell is not None and not self._cell.done():
            self._cancelled = True
            self._loop.call_soon_threadsafe(self._cell.cancel)
        else:
            raise KeyboardInterrupt

    async def _execute(self, payload: CellPayload) -> BaseException | None:
        shell = self._shell
        failed_early: Any = None
        transformed = payload.source
        shell.begin_cell()
        try:
            if not payload.function:  # that is one statement of ours
                transformed = shell.transform_cell(payload.source)
        except Exception as error:  # noqa: BLE001 - a transformer of the user's own may raise anything
            failed_early = (type(error), error, error.__traceback__)
        # the magic's own lines come first, so that line numbers are those of the notebook's cell
        shifted = "\n" * payload.line_offset + transformed
        shell.displayhook.cell = transformed
        sources.register_sources(shell.compile, payload.sources)
        shell.compile.given = (shifted, payload.filename)
        shell.hidden_file = payload.filename if payload.function else ""
        result = await shell.run_cell_async(
            payload.source, store_history=False, transformed_cell=shifted, preprocessing_exc_tuple=failed_early
        )
        raised: BaseException | None = result.error_before_exec or result.error_in_exec
        if isinstance(raised, Preempted):  # its figures go on, too
            return raised
        shell.events.trigger("post_execute")
        shell.events.trigger("post_run_cell", result)
        return raised or shell.unshown

    def _finish_tasks(self) -> list[str]:
        """Give tasks that nobody awaited a short while, then cancel them and say so."""
        tasks = [task for task in asyncio.all_tasks(self._loop) if not task.done()]
        if not tasks:
            return []
        self._shell.gate.handler = self._on_interrupt
        self._shell.gate.open()
        _done, pending = self._loop.run_until_complete(asyncio.wait(tasks, timeout=LEFT_OVER_S))
        for task in pending:
            task.cancel()
        if not pending:
            return []
        self._loop.run_until_complete(asyncio.wait(pending, timeout=1.0))
        return [f"{len(pending)} asyncio task(s) still ran after the cell and were cancelled: await them in the cell"]
