"""Hands the items of one ``launch_map`` out to its workers, and takes in what they send home."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

import msgspec

from ..errors import GpuReleaseError, RunCancelledError, RunLostError
from ..protocol.events import Event
from ..protocol.fetch import ITEM, NEXT, ItemOutcome, ItemRequest
from ..protocol.session import Supply
from ..protocol.states import RunState
from ..protocol.wire import encode
from ..submission.request import Submission
from .executor import FunctionExecutor, Show
from .future import RunFuture
from .item_future import ItemFuture
from .item_queue import ItemQueue

log = logging.getLogger(__name__)
#: so many workers in a row may end without an item begun: the next one would not do better
_MOST_IN_VAIN = 3


class MapCoordinator:
    """One thread does all of it, since sending a worker waits for the gateway; it ends with the last worker.

    A worker that ends before the items do is replaced, unless somebody has cancelled it. All goes through the session
    in which it began, also while that is not connected: to open another one would end it.
    """

    def __init__(
        self,
        executor: FunctionExecutor,
        submission: Submission,
        name: str,
        futures: Sequence[ItemFuture[Any]],
        show: Show,
    ) -> None:
        self._executor = executor
        self._submission = submission
        self._name = name
        self._futures = futures
        self._show = show
        self._queue = ItemQueue(range(len(futures)))
        #: of the queue, which users look into as well
        self._lock = threading.Lock()
        self._messages: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._sent: list[Submission] = []
        #: all that were sent, and those that have not ended
        self.workers: list[RunFuture[Any]] = []
        self._living: dict[str, RunFuture[Any]] = {}
        self._session = executor.session()
        #: those that have asked for an item
        self._known: set[str] = set()
        self._wanted = 0
        self._in_vain = 0
        self._is_cancelled = False

    # ---------------------------------------------------------------------------------- the user's side
    def begin(self, processes: int) -> None:
        """Send the workers; raises what the gateway refuses, and then none of them goes on."""
        self._wanted = processes
        try:
            self._send(self._submission)
            for _ in range(processes - 1):
                self._send(self._submission.again())
        except BaseException:
            for worker in self.workers:
                worker.cancel()
            raise
        threading.Thread(target=self._run, name="gpu-map", daemon=True).start()

    def cancel(self) -> None:
        """End all of it; a second call kills what does not react."""
        self._messages.put(self._cancel)

    def take_out(self, item: int) -> bool:
        """Cancel one item; False: it was handed out already."""
        with self._lock:
            is_out = self._queue.take_out(item)
        if is_out:
            self._futures[item].give_up(RunCancelledError("the item was cancelled"))
        return is_out

    # --------------------------------------------------------------------------------------- the thread
    def _run(self) -> None:
        try:
            while self._living:
                self._messages.get()()
                self._answer()
        except Exception as error:  # whoever waits for an item must hear of it
            log.exception("launch_map of %s", self._name)
            self._give_up(range(len(self._futures)), RunLostError(f"handing out the items has failed: {error!r}"))
            self._cancel()

    def _send(self, submission: Submission) -> None:
        run = submission.request.run
        self._sent.append(submission)
        worker = self._executor.send(submission, self._name, partial(self._hear, run), self._session)
        self.workers.append(worker)
        self._living[run] = worker
        worker.when_done(lambda _: self._messages.put(partial(self._ended, run)))

    def _hear(self, run: str, events: Sequence[Event]) -> None:
        """On the session's thread."""
        ours = [event for event in events if event.kind in (NEXT, ITEM)]
        if ours:
            self._messages.put(partial(self._take, run, ours))
        if len(ours) < len(events):
            self._show([event for event in events if event.kind not in (NEXT, ITEM)])

    def _take(self, run: str, events: Sequence[Event]) -> None:
        if run not in self._living:  # given up: nobody would hear of the end of what it is given
            return
        for event in events:
            if event.kind == NEXT:
                request = msgspec.convert(event.data, ItemRequest)
                with self._lock:
                    self._queue.on_question(run, request)
                self._known.add(run)
                if request.begins is not None:
                    self._futures[request.begins].on_begin(run)
            else:
                outcome = msgspec.convert(event.data, ItemOutcome)
                with self._lock:
                    self._queue.note_done(run, outcome.item)
                self._in_vain = 0
                self._futures[outcome.item].on_end(run, outcome)

    def _answer(self) -> None:
        with self._lock:
            answers, is_empty = self._queue.take_answers(), not self._queue.waiting
        for run, answer in answers:
            self._session.supply(Supply(run, 0, encode(answer)))
        if is_empty:  # nothing is left for those that still wait for their GPUs
            for run in self._wanted_still() - self._known:
                self._dismiss(run)

    def _ended(self, run: str) -> None:
        worker = self._living.pop(run)
        is_sure = not worker.is_given_up and worker.status != RunState.LOST.word
        with self._lock:
            lost = self._queue.on_worker_ended(run, is_sure=is_sure)
        if not self._queue.is_dismissed(run):
            self._in_vain = 0 if lost else self._in_vain + 1
        for item in lost:
            self._futures[item].on_worker_lost(worker)
        if not self._queue.waiting:
            return
        failure = worker.exception()
        if self._may_go_on(run, worker, failure):
            failure = self._replace() or failure
        if self._is_cancelled or not self._living:
            error = failure if isinstance(failure, GpuReleaseError) else None
            if self._is_cancelled:
                error = RunCancelledError("cancelled before it began")
            with self._lock:
                waiting = self._queue.drop_waiting()
            self._give_up(waiting, error or RunLostError(f"no worker is left for it: {failure or 'they ended'}"))

    def _may_go_on(self, run: str, worker: RunFuture[Any], failure: BaseException | None) -> bool:
        """Tell if another worker may take the place of one that has ended."""
        is_unwanted = isinstance(failure, RunCancelledError) and not self._queue.is_dismissed(run)
        return not (self._is_cancelled or worker.is_given_up or is_unwanted or self._in_vain > _MOST_IN_VAIN)

    def _replace(self) -> GpuReleaseError | None:
        """Send another worker, where there are fewer than there were to be; returns why that did not work."""
        if len(self._wanted_still()) >= min(self._wanted, self._queue.waiting):
            return None
        try:
            # what was written for a worker that never had its turn is gone with it
            self._send(next((sent for sent in self._sent if sent.has_inputs), self._submission).again())
        except GpuReleaseError as error:
            log.warning("launch_map of %s goes on with %d workers: %s", self._name, len(self._living), error)
            return error
        return None

    def _give_up(self, items: Sequence[int], error: GpuReleaseError) -> None:
        for item in items:
            self._futures[item].give_up(type(error)(error.message, hint=error.hint))

    def _cancel(self) -> None:
        self._is_cancelled = True
        with self._lock:
            waiting = self._queue.drop_waiting()
        self._give_up(waiting, RunCancelledError("cancelled before it began"))
        for run in self._living:
            self._dismiss(run)

    def _wanted_still(self) -> set[str]:
        return {run for run in self._living if not self._queue.is_dismissed(run)}

    def _dismiss(self, run: str) -> None:
        self._queue.dismiss_worker(run)
        self._living[run].cancel()
