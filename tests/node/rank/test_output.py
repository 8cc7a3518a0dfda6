"""What a rank prints reaches its supervisor, even when an interrupt struck in the middle of a ``print``."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.node.ipc import frames
from jupyter_gpu_release.node.ipc.frames import Kind, Output
from jupyter_gpu_release.node.ipc.text_journal import TextJournal
from jupyter_gpu_release.node.rank import interrupts, output
from jupyter_gpu_release.node.rank.output import OutputSender, OutStream
from jupyter_gpu_release.protocol.wire import decode


@pytest.fixture
def ends() -> Iterator[tuple[OutputSender, socket.socket]]:
    """An outlet that an interrupt struck between noting that it rings for its sender, and ringing."""
    ours, theirs = socket.socketpair()
    synced = os.eventfd(0)
    outlet = OutputSender(ours, TextJournal(), synced)
    outlet._rung, outlet._rung_at_s = True, 0.0
    theirs.settimeout(30)
    with ours, theirs:
        yield outlet, theirs
        ours.shutdown(socket.SHUT_RDWR)


def _text(sock: socket.socket) -> str:
    kind, body = frames.receive_frame(sock) or (None, b"")
    assert kind is Kind.OUTPUT
    return "".join(chain.from_iterable(output.data["text"] for output in decode(body, list[Output])))


def test_the_next_print_is_sent(ends: tuple[OutputSender, socket.socket]) -> None:
    outlet, theirs = ends
    outlet._queue.append((0.0, "stdout", "before ", 0))
    OutStream(outlet, "stdout", 1).write("after")
    assert _text(theirs) == "before after"


def test_the_end_of_the_cell_is_told(ends: tuple[OutputSender, socket.socket]) -> None:
    outlet, theirs = ends
    outlet._rung_at_s = float("inf")  # as if it had rung a moment ago
    OutStream(outlet, "stdout", 1).write("text")
    ending = threading.Thread(target=outlet.send_frame, args=(Kind.ENDED, b"1"), daemon=True)
    ending.start()
    assert _text(theirs) == "text"
    assert frames.receive_frame(theirs) == (Kind.ENDED, b"1")
    ending.join(30)
    assert not ending.is_alive()
    assert outlet._journal.unsent_texts() == [], "else a crash shows it a second time"


def test_what_comes_meanwhile_is_no_answer_to_a_synchronisation() -> None:
    ours, theirs = socket.socketpair()
    synced = os.eventfd(0)
    outlet = OutputSender(ours, TextJournal(), synced)
    with ours, theirs:
        frames.send_frame(theirs, Kind.ANSWER)
        waits = threading.Thread(target=outlet.sync)
        waits.start()
        assert frames.receive_frame(theirs) == (Kind.SYNC, b"")
        waits.join(0.05)
        assert waits.is_alive()
        os.eventfd_write(synced, 1)
        waits.join(30)
        assert frames.receive_frame(ours) == (Kind.ANSWER, b"")
        ours.shutdown(socket.SHUT_RDWR)


def test_a_batch_that_cannot_be_sent_is_said_and_the_next_one_is_sent(
    ends: tuple[OutputSender, socket.socket], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    outlet, theirs = ends
    real, failed = output.encode, list[Any]()

    def encode(what: Any) -> bytes:
        if not failed:
            failed.append(what)
            raise MemoryError
        return real(what)

    monkeypatch.setattr(output, "encode", encode)
    stream = OutStream(outlet, "stdout", 1)
    for text in ("lost", "next"):
        stream.write(text)
        stream.flush()
    assert _text(theirs) == "next"
    assert "an output was lost" in capfd.readouterr().err


def test_who_waits_for_a_sender_that_has_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    lost = threading.Event()
    outlet = OutputSender(ours, TextJournal(), os.eventfd(0), on_lost=lost.set)
    monkeypatch.setattr(output, "_LOOK_S", 0.01)
    with ours, theirs:
        os.close(outlet._bell)  # the sender goes on waiting: the system keeps what it reads
        outlet.flush()
        assert lost.is_set()


def test_what_a_handler_printed_amid_a_print_does_not_break_the_journal() -> None:
    journal = TextJournal()
    end = journal.add_text("stdout", "one")
    journal.add_text("stdout", "two")
    journal._memory[end + 4] = 9
    assert journal.unsent_texts() == [("stdout", "one")]


def test_what_another_thread_prints_as_the_journal_begins_anew_hides_nothing_of_it(
    ends: tuple[OutputSender, socket.socket],
) -> None:
    """The sender comes to it after the journal's writer, which had waited for all before it, has gone on."""
    outlet, theirs = ends
    journal = outlet._journal

    class Writer:
        def release(self) -> None:
            journal.restart()
            journal.add_text("stdout", "last words")

    outlet._queue.append((0.0, "stdout", "much ", journal.add_text("stdout", "much ")))
    outlet._queue.append((0.0, "flush!", (b"", Writer()), 0))
    outlet._queue.append((0.0, "stdout", "of another thread", 0))
    outlet._ring_for(outlet._bell)
    assert [_text(theirs), _text(theirs)] == ["much ", "of another thread"]
    outlet.flush()
    assert journal.unsent_texts() == [("stdout", "last words")]


def test_an_interrupt_while_another_is_being_repeated_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = list[int]()

    def interrupt_soon() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(interrupts, "_interrupt_soon", interrupt_soon)
    interrupts.repeat_dropped_interrupts()
    sys.unraisablehook(SimpleNamespace(exc_type=KeyboardInterrupt))  # type: ignore[arg-type]
    assert len(tries) == 2
