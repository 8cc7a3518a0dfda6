"""Large inputs are sent with a line below the cell, and an interrupt ends that at once, whatever the store does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.kernel.runs import sending
from jupyter_gpu_release.kernel.runs.sending import send_inputs
from jupyter_gpu_release.store.files import Pace

UntilTrue = Callable[[Callable[[], object], str], None]


class _Output:
    is_in_notebook = True

    def __init__(self) -> None:
        self.said: list[str] = []
        self.on_line: Callable[[], None] = lambda: None

    def publish(self, data: dict[str, Any], *_: Any, update: bool) -> None:
        assert update == bool(self.said)
        self.said.append(data["text/plain"])
        self.on_line()

    def keep_busy(self) -> None:
        """The page knows."""


class _Submission:
    def __init__(self) -> None:
        self.is_withdrawn = threading.Event()

    def withdraw(self) -> None:
        self.is_withdrawn.set()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_QUIET_S", 0.0)
    monkeypatch.setattr(sending, "_TICK_S", 0.005)


def test_how_far_it_is_is_said_and_then_how_long_it_took() -> None:
    output, submission, shown = _Output(), _Submission(), threading.Event()
    output.on_line = lambda: shown.set() if output.said[-1].endswith("(50 %)") else None

    def send(pace: Pace) -> Any:
        pace.wrote(1 << 30)
        assert shown.wait(60)
        pace.wrote(1 << 30)
        return submission

    assert send_inputs(send, 2 << 30, output, SimpleNamespace(count=0)) is submission  # type: ignore[arg-type]
    assert "sending the inputs to the store · 1 GiB of 2 GiB written (50 %)" in output.said
    assert output.said[-1].startswith("sent 2 GiB of inputs in ")


def test_what_is_sent_at_once_is_not_worth_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_QUIET_S", 3600.0)
    output = _Output()
    send_inputs(lambda _: _Submission(), 2 << 20, output, SimpleNamespace(count=0))  # type: ignore[arg-type, return-value]
    assert not output.said


def test_an_error_is_the_cells() -> None:
    def send(_pace: Pace) -> Any:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        send_inputs(send, 2 << 20, _Output(), SimpleNamespace(count=0))  # type: ignore[arg-type]


def test_an_interrupt_ends_it_between_two_pieces() -> None:
    output, interrupts, written = _Output(), SimpleNamespace(count=0), []
    output.on_line = lambda: setattr(interrupts, "count", 1)

    def send(pace: Pace) -> Any:
        while True:
            pace.wrote(1 << 20)
            written.append(1)
            time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        send_inputs(send, 2 << 30, output, interrupts)  # type: ignore[arg-type]
    assert output.said[-1] == "interrupted while the inputs were being sent: nothing runs"
    assert not any(thread.name == "jgr-sending" for thread in threading.enumerate())


def test_an_interrupt_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_END_S", 0.01)
    submission, answers = _Submission(), threading.Event()

    def send(_pace: Pace) -> Any:
        answers.wait(60)
        return submission

    with pytest.raises(KeyboardInterrupt):
        send_inputs(send, 2 << 30, _Output(), SimpleNamespace(count=1))  # type: ignore[arg-type]
    answers.set()
    assert submission.is_withdrawn.wait(60), "what came too late is taken back"
