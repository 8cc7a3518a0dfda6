"""A launched function's run as a future, without a cluster."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from jupyter_gpu_release.errors import RunLostError
from jupyter_gpu_release.functions.executor import FunctionExecutor
from jupyter_gpu_release.functions.future import RunFuture
from jupyter_gpu_release.functions.item_future import ItemFuture
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.fetch import ItemOutcome
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, RunView


def _launched() -> RunFuture[Any]:
    return RunFuture(cast(FunctionExecutor, None), RunView("r", "", "running"), "f", lambda _: None)


def _end(launched: RunFuture[Any]) -> None:
    """As the session's thread does."""
    launched.give_up(RunLostError("gone"))


def test_asyncio_waits_for_the_first_of_them_and_leaves_nothing_behind() -> None:
    runs = [_launched() for _ in range(3)]

    async def wait() -> list[int]:
        early = await asyncio.wait(runs, timeout=0)
        threading.Thread(target=_end, args=[runs[1]]).start()
        first = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED, timeout=100)
        failed = await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION, timeout=100)  # it is over already
        assert first == failed == ({runs[1]}, {runs[0], runs[2]})
        return [len(group) for group in early]

    assert asyncio.run(wait()) == [0, 3]
    assert not any(run._waiting for run in runs)
    for run in runs:
        _end(run)  # the loop is closed


def test_other_callbacks_are_called_while_the_loop_is_busy() -> None:
    launched, called = _launched(), threading.Event()

    async def blocks() -> bool:
        launched.add_done_callback(lambda _: called.set())
        _end(launched)
        return called.wait(100)

    assert asyncio.run(blocks())


class _Launcher:
    """Counts what is read; the values are ``7``."""

    read = 0

    def value_of(self, view: RunView, name: str) -> Any:
        self.read += 1
        return 7

    def logs(self, run: str) -> str:
        return f"logs of {run}"

    def with_traceback(self, failure: BaseException, view: RunView) -> BaseException:
        return failure


@pytest.mark.parametrize(
    ("status", "values", "state"),
    [
        ("ok", Graph(stream=b"x"), "succeeded"),
        ("ok", None, "succeeded"),
        ("interrupted", None, "cancelled"),
        ("died", None, "failed"),
        ("ok", Graph(file="values.graph"), "persisting"),
    ],
)
def test_a_run_whose_values_are_here_is_over_whatever_becomes_of_them_on_the_store(
    status: str, values: Graph | None, state: str
) -> None:
    run = _launched()
    run.update_view(RunView("r", "", "persisting", gone_at=1.0, outcome=Outcome(status, values=values)))
    assert (run.status, run.done(), run.cancelled()) == (state, state != "persisting", state == "cancelled")


def test_a_value_is_loaded_once_and_a_run_that_is_over_cannot_be_cancelled() -> None:
    launcher, told = _Launcher(), list[str]()
    run: RunFuture[Any] = RunFuture(launcher, RunView("r", "", "submitted"), "f", told.append)
    assert (run.logs(), run.cancel(), told) == ("", True, ["interrupt"])
    run.update_view(RunView("r", "", "succeeded", outcome=Outcome("ok")))
    run.give_up(RunLostError("the session has ended, too"))
    assert (run.status, run.result(0), run.result(0), launcher.read) == ("succeeded", 7, 7, 1)
    assert (run.logs(), run.cancel(), told) == ("logs of r", False, ["interrupt"])


def test_a_callback_of_a_run_that_is_over_is_called_at_once_and_its_error_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, called = _launched(), list[object]()
    _end(run)
    run.add_done_callback(called.append)
    run.add_done_callback(lambda _: 1 / 0)
    assert called == [run]
    assert "a done callback of a launched function failed" in caplog.text


def test_our_words_speak_of_the_function_and_the_users_stay_as_they_are() -> None:
    def evalue(code: str) -> str:
        error = ErrorInfo("E", "the cell ended; run the cell again", [], code=code)
        run = _launched()
        run.update_view(RunView("r", "", "failed", outcome=Outcome("error", error=error)))
        assert run.view.outcome is not None
        assert run.view.outcome.error is not None
        return run.view.outcome.error.evalue

    assert evalue("failed") == "the function ended; launch it again"
    assert evalue("") == "the cell ended; run the cell again"


def test_an_items_error_names_the_item_once_and_an_item_that_is_over_stays_so() -> None:
    taken: list[int] = []
    item: ItemFuture[Any] = ItemFuture(_Launcher(), "f", 3, "x", lambda n: not taken.append(n), str)
    assert (item.cancel(), taken, item.logs()) == (True, [3], "")
    item.on_begin("run-1")
    assert (item.id, item.status, item.logs()) == ("run-1", "running", "logs of run-1")
    item.on_end("run-1", ItemOutcome(3, error=ErrorInfo("ValueError", "no", [], code="failed")))
    for _ in range(2):
        error = item.exception(0)
        assert error is not None
        assert getattr(error, "__notes__", []) == ["item 3 of f: 'x'"]
    item.on_begin("run-2")
    item.on_end("run-2", ItemOutcome(3))
    assert (item.id, item.status, item.cancel(), taken) == ("run-1", "failed", False, [3])


def test_an_item_whose_worker_is_lost_says_what_helps() -> None:
    worker, item = _launched(), ItemFuture[Any](_Launcher(), "f", 0, "x", lambda _: False, str)
    worker.give_up(RunLostError("its node died", hint="retries=2"))
    item.on_worker_lost(worker)
    error = item.exception(0)
    assert isinstance(error, RunLostError)
    assert error.hint == "retries=2"
    assert error is not worker.exception(0)  # each item has a note of its own
