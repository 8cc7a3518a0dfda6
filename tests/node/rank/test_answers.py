"""Answers to a rank's questions: each is to its own question."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.node.ipc import frames
from jupyter_gpu_release.node.ipc.frames import Kind
from jupyter_gpu_release.node.rank import fetching
from jupyter_gpu_release.node.rank.fetching import Fetcher
from jupyter_gpu_release.protocol.fetch import Answer
from jupyter_gpu_release.protocol.wire import encode


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    theirs.close()
    for reader in [thread for thread in threading.enumerate() if thread.name == "jgr-answers"]:
        reader.join()
    ours.close()


def test_an_interrupt_of_one_question_leaves_the_next_one_its_answer(
    line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it strikes: who reads the answers is there before the first question."""
    ours, theirs = line
    outlet: Any = SimpleNamespace(is_own_process=True, add_event=lambda *_: None)
    fetcher = Fetcher(outlet, ours, {"first": 1, "second": 1}, lambda name, answer: (name, answer.ask))
    monkeypatch.setattr(fetching, "_WAIT_S", 10.0)
    with monkeypatch.context() as patch:

        def strike(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(threading.Thread, "start", strike)
        patch.setattr(outlet, "add_event", strike)
        with pytest.raises(KeyboardInterrupt):
            fetcher.fetch("first")
    for number in (1, 2):
        frames.send_frame(theirs, Kind.ANSWER, encode(Answer(number)))
    assert fetcher.fetch("second")[0] == "second"


def test_a_late_answer_to_an_earlier_question_is_not_taken(
    line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = line
    outlet: Any = SimpleNamespace(is_own_process=True, add_event=lambda *_: None)
    fetcher = Fetcher(outlet, ours, {"first": 1, "second": 1}, lambda name, answer: (name, answer.ask))
    with monkeypatch.context() as patch:
        patch.setattr(fetching, "_WAIT_S", 0.05)
        with pytest.raises(NameError, match="did not answer"):
            fetcher.fetch("first")
    for number in (1, 2):
        frames.send_frame(theirs, Kind.ANSWER, encode(Answer(number)))
    assert fetcher.fetch("second") == ("second", 2)
