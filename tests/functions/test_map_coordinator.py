"""Handing items out while workers, their cluster or the connection go away: without a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import (
    GatewayUnavailableError,
    GpuReleaseError,
    RunCancelledError,
    RunFailedError,
    RunLostError,
)
from jupyter_gpu_release.functions.executor import FunctionExecutor
from jupyter_gpu_release.functions.future import RunFuture
from jupyter_gpu_release.functions.item_future import ItemFuture
from jupyter_gpu_release.functions.map_coordinator import MapCoordinator
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.fetch import ITEM, NEXT, ItemOutcome, ItemRequest, NextItem
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.protocol.session import Supply
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder
from jupyter_gpu_release.submission.request import Submission

Until = Callable[[Callable[[], object], str], None]


class MapBed:
    """A map whose workers and connection are this test."""

    def __init__(self, items: int, processes: int, paths: RunPaths | None = None) -> None:
        self.supplied: list[Supply] = []
        self.told: list[str] = []
        self.shown: list[Event] = []
        self.sent: dict[str, tuple[RunFuture[Any], Callable[[list[Event]], None]]] = {}
        self.submissions: dict[str, Submission] = {}
        self.is_away = False
        self._asked: dict[str, int] = {}
        self._wire = SimpleNamespace(supply=self.supplied.append)
        executor = cast(FunctionExecutor, self)
        made: list[MapCoordinator] = []
        self.futures: list[ItemFuture[Any]] = [
            ItemFuture(executor, "f", n, n, lambda item: made[0].take_out(item), lambda: "") for n in range(items)
        ]
        first = Submission(RunRequest("first", "s", ResourceAsk(), b""), cast(Any, None), paths)
        made.append(MapCoordinator(executor, first, "f", self.futures, self.shown.extend))
        self.coordinator = made[0]
        self.coordinator.begin(processes)

    # ------------------------------------------------------------------------ as the executor does
    def session(self) -> GatewaySession:
        """A kernel that cannot reach its gateway ends its session, and all runs with it."""
        if self.is_away:
            raise GatewayUnavailableError("the gateway is away")
        return cast(GatewaySession, self._wire)

    def send(self, submission: Submission, name: str, show: Any, session: Any = None) -> RunFuture[Any]:
        run = submission.request.run
        worker: RunFuture[Any] = RunFuture(
            cast(Any, self), RunView(run, "", "queued"), name, lambda _: self.told.append(run)
        )
        self.sent[run] = worker, show
        self.submissions[run] = submission
        return worker

    def with_traceback(self, failure: BaseException, view: RunView) -> BaseException:
        return failure

    # ------------------------------------------------------------------------------- as workers do
    def runs(self) -> list[str]:
        return list(self.sent)

    def ask(self, run: str, begins: int | None = None) -> None:
        self._asked[run] = self._asked.get(run, 0) + 1
        request = ItemRequest(self._asked[run], begins)
        self.sent[run][1]([Event(1, 0.0, NEXT, msgspec.to_builtins(request))])

    def give(self, run: str, item: int) -> None:
        self.sent[run][1]([Event(1, 0.0, ITEM, msgspec.to_builtins(ItemOutcome(item)))])

    def end(self, run: str, state: str, status: str) -> None:
        self.sent[run][0].update_view(RunView(run, "", state, outcome=Outcome(status)))

    def answers(self, run: str) -> list[int | None]:
        return [decode(message.body, NextItem).item for message in self.supplied if message.run == run]


def test_a_connection_that_is_lost_for_a_while_ends_nothing(until: Until) -> None:
    """The answer waits for the way back: to ask for a session would end the one that there is."""
    bed = MapBed(3, 1)
    [run] = bed.runs()
    bed.is_away = True
    bed.ask(run)
    until(lambda: bed.answers(run) == [0], "the answer is with the session")
    assert not any(future.done() for future in bed.futures)


def test_workers_are_not_replaced_when_nobody_hears_of_them_any_more(until: Until) -> None:
    """The session was closed, or this machine's cluster stopped: another one is not started for the rest."""
    bed = MapBed(9, 2)
    for run in bed.runs():
        bed.ask(run)
    until(lambda: all(bed.answers(run) for run in bed.runs()), "both have an item")
    for worker, _ in list(bed.sent.values()):
        worker.give_up(RunLostError("this machine's own cluster ended"))
    until(lambda: all(future.done() for future in bed.futures), "all futures end")
    assert len(bed.sent) == 2
    assert {type(future.exception()) for future in bed.futures} == {RunLostError}
    assert {future.status for future in bed.futures} == {"lost"}


def test_workers_that_begin_nothing_are_replaced_a_few_times_in_a_row(until: Until) -> None:
    bed = MapBed(9, 1)

    def newest(number: int) -> str:
        until(lambda: len(bed.sent) == number, "another worker")
        return bed.runs()[-1]

    for number in range(1, 8):
        run = newest(number)
        if number == 4:  # this one does its work
            bed.ask(run)
            bed.give(run, 0)
        bed.end(run, "failed", "died")
    until(lambda: all(future.done() for future in bed.futures), "the rest is given up")
    assert (len(bed.sent), bed.futures[0].status, bed.futures[1].status) == (7, "succeeded", "failed")


def test_no_other_worker_is_sent_for_what_those_that_are_left_can_do(until: Until) -> None:
    bed = MapBed(3, 2)
    first, second = bed.runs()
    for item, run in enumerate((first, second)):
        bed.ask(run)
        until(lambda run=run, item=item: bed.answers(run) == [item], "it has an item")
    bed.ask(first, 0)
    bed.end(first, "failed", "died")
    bed.ask(second, 1)
    bed.give(second, 1)
    until(lambda: bed.answers(second) == [1, 2], "it has the last item")
    assert len(bed.sent) == 2


def test_cancelling_takes_out_what_waits_and_ends_all_workers(until: Until) -> None:
    bed = MapBed(3, 2)
    first, second = bed.runs()
    bed.ask(first)
    until(lambda: bed.answers(first) == [0], "it has an item")
    bed.ask(first, 0)
    bed.coordinator.cancel()
    until(lambda: bed.told == [first, second], "both are ended")
    assert [future.status for future in bed.futures] == ["running", "queued", "cancelled"], "it had two"
    for run in (first, second):
        bed.end(run, "cancelled", "interrupted")
    until(lambda: all(future.done() for future in bed.futures), "nothing goes on")
    assert (len(bed.sent), {future.status for future in bed.futures}) == (2, {"cancelled"})


def test_what_workers_print_is_shown_and_what_they_ask_is_not(until: Until) -> None:
    bed = MapBed(2, 1)
    [run] = bed.runs()
    said = Event(1, 0.0, "stream", {"text": "hello"})
    bed.sent[run][1]([said, Event(2, 0.0, NEXT, msgspec.to_builtins(ItemRequest(1)))])
    until(lambda: bed.answers(run) == [0], "it has an item")
    assert bed.shown == [said]


def test_an_item_comes_back_to_a_new_worker_when_the_others_were_told_to_leave(until: Until) -> None:
    """Nothing seemed to be left for the second worker; then the first one died with an item that it had not begun."""
    bed = MapBed(2, 2)
    first, second = bed.runs()
    bed.ask(first)
    bed.ask(first, 0)
    until(lambda: bed.told == [second], "the second one is told to leave the queue")
    bed.ask(second)  # it came to its turn all the same
    bed.end(first, "failed", "died")
    until(lambda: bed.futures[0].done() and len(bed.sent) == 3, "a new one is sent")
    bed.end(second, "cancelled", "interrupted")
    third = bed.runs()[2]
    bed.ask(third)
    until(lambda: bed.answers(third) == [1], "it has the item")
    assert bed.answers(second) == [None]
    bed.ask(third, 1)
    bed.give(third, 1)
    until(bed.futures[1].done, "the item is done")
    assert bed.futures[1].status == "succeeded"


def test_a_new_worker_has_inputs_also_when_those_of_the_first_one_went_with_it(until: Until, tmp_path: Path) -> None:
    """Somebody cancels the first worker while it waits: what was written for it goes with it."""
    paths = create_run_folder(tmp_path, new_run_id())
    paths.inputs.write_text("inputs")
    bed = MapBed(5, 2, paths)
    first, second = bed.runs()
    shutil.rmtree(paths.folder)
    bed.end(first, "cancelled", "interrupted")
    bed.ask(second)
    until(lambda: bed.answers(second) == [0], "it has an item")
    assert len(bed.sent) == 2, "nobody wants another one in its place"
    bed.end(second, "failed", "died")
    until(lambda: len(bed.sent) == 3, "another one is sent")
    found = bed.submissions[bed.runs()[2]].paths
    assert found is not None
    assert found.inputs.read_text() == "inputs"


def test_of_a_worker_whose_node_is_gone_nobody_knows_what_it_had_begun(until: Until) -> None:
    """What its node did not come to tell is lost with it: no item is begun twice."""
    bed = MapBed(5, 1)
    [run] = bed.runs()
    bed.ask(run)
    until(lambda: bed.answers(run) == [0], "it has an item")
    bed.end(run, "lost", "lost")
    until(lambda: len(bed.sent) == 2, "another one goes on")
    assert bed.futures[0].status == "lost"
    again = bed.runs()[1]
    bed.ask(again)
    until(lambda: bed.answers(again) == [1], "with the next item")


def test_a_late_question_of_a_worker_that_was_given_up_gets_no_item(until: Until) -> None:
    """Nobody would hear of the end of that item."""
    bed = MapBed(3, 2)
    first, second = bed.runs()
    bed.ask(first)
    until(lambda: bed.answers(first) == [0], "it has an item")
    bed.sent[first][0].give_up(RunLostError("no word of it"))
    until(bed.futures[0].done, "its item is lost")
    bed.ask(first, 0)
    bed.ask(second)
    for item in (1, 2):
        until(lambda item=item: item in bed.answers(second), "the other one has it")
        bed.ask(second, item)
        bed.give(second, item)
    until(lambda: all(future.done() for future in bed.futures), "all are over")
    assert bed.answers(first) == [0]


def test_an_item_that_is_taken_out_is_over_at_once(until: Until) -> None:
    """Whatever the workers do: the last one may end just then."""
    bed = MapBed(2, 1)
    [run] = bed.runs()
    bed.ask(run)
    until(lambda: bed.answers(run) == [0], "it has an item")
    assert bed.futures[1].cancel()
    assert bed.futures[1].done()
    with pytest.raises(RunCancelledError):
        bed.futures[1].result(0)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunCancelledError("c"), "cancelled"),
        (RunFailedError("no GPU within wait="), "failed"),
        (RunLostError("l"), "lost"),
        (GatewayUnavailableError("g"), "lost"),
    ],
)
def test_an_item_that_was_given_up_says_so(error: GpuReleaseError, status: str) -> None:
    bed = MapBed(1, 1)
    bed.futures[0].give_up(error)
    assert (bed.futures[0].done(), bed.futures[0].status) == (True, status)
