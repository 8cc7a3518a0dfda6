"""Many calls of one function: who waits for the gateway's answer, and where a late refusal goes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from functions_bed import StartScript

from jupyter_gpu_release.errors import RequestError
from jupyter_gpu_release.functions import executor
from jupyter_gpu_release.functions.executor import RunEventHandler, SendWindow
from jupyter_gpu_release.functions.future import RunFuture
from jupyter_gpu_release.protocol.runs import RunView
from jupyter_gpu_release.protocol.session import Refused


def _hearing() -> tuple[RunFuture[Any], RunEventHandler]:
    launched: RunFuture[Any] = RunFuture(None, RunView("r", "", "submitted"), "f", lambda _: None)  # type: ignore[arg-type]
    return launched, RunEventHandler(launched, lambda _: None, lambda: None)


def test_only_a_kind_of_call_that_was_accepted_goes_ahead() -> None:
    calls = SendWindow()
    assert not calls.may_go("f", _hearing()[1], 0.0)
    calls.note("f")
    assert calls.may_go("f", _hearing()[1], 0.0)
    assert not calls.may_go("g", _hearing()[1], 0.0)


def test_not_too_many_are_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_MOST", 2)
    calls = SendWindow()
    calls.note("f")
    oldest = _hearing()[1]
    assert all(calls.may_go("f", hearing, 0.0) for hearing in (oldest, _hearing()[1]))
    assert not calls.may_go("f", _hearing()[1], 0.0)  # nothing was heard: this one is waited for
    next_oldest = _hearing()[1]
    calls = SendWindow()
    calls.note("f")
    calls.may_go("f", next_oldest, 0.0)
    calls.may_go("f", _hearing()[1], 0.0)
    threading.Timer(0.05, next_oldest.settled.set).start()
    assert calls.may_go("f", _hearing()[1], 10.0)


def test_a_late_refusal_is_the_futures() -> None:
    launched, hearing = _hearing()
    calls = SendWindow()
    calls.note("f")
    assert calls.may_go("f", hearing, 0.0)
    hearing(Refused("r", "bad_request", "not like this", "write it otherwise"))
    with pytest.raises(RequestError, match="not like this"):
        launched.result(0)
    assert not calls.may_go("f", _hearing()[1], 0.0)


def test_three_hundred_calls(start: StartScript) -> None:
    text = "def f(n):\n    return n\nruns = [launch(f, n) for n in range(300)]\n"
    answers, _ = start(text + "print(json.dumps([run.result() for run in runs]))").end(180)
    assert answers == list(range(300))
