"""Answers that a rank waits for inside the cell's statement: names that were not sent, items of ``launch_map``."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import GpuReleaseError
from ...protocol.fetch import FETCH, Answer, not_sent
from ...protocol.wire import decode
from ..ipc import frames
from ..ipc.frames import Kind
from .output import OutputSender

#: a kernel that has not answered after this, and after the time that a slow store takes for the value, will not
_WAIT_S = 60.0
_SLOW_BYTES_PER_S = 10 << 20

#: (name, answer) → the value, bound
Take = Callable[[str, Answer], Any]


class AnswerQueue:
    """A thread of its own reads ``sock``: an interrupt tears no frame. Made before anything is asked."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read_forever, name="jgr-answers", daemon=True).start()

    def next_answer(self, limit_s: float) -> bytes | None:
        """The next answer; None when none comes within ``limit_s``. Can be interrupted."""
        try:
            return self._answers.get(timeout=max(limit_s, 0.0))
        except queue.Empty:
            return None

    def _read_forever(self) -> None:
        while (frame := frames.receive_frame(self._sock)) is not None:
            if frame[0] is Kind.ANSWER:
                self._answers.put(frame[1])


class Fetcher:
    """``held``: name → bytes at least. One question at a time, from any thread of the cell (see
    :mod:`.values.names_on_request`). Made before interrupts strike.
    """

    def __init__(self, outlet: OutputSender, sock: socket.socket, held: Mapping[str, int], take: Take) -> None:
        self._outlet = outlet
        self._held = held
        self._take = take
        self._asked = 0
        self._refused = ""
        self._answers = AnswerQueue(sock)

    def fetch(self, name: str) -> Any:
        """The value of ``name``; raises ``NameError`` with the reason why it does not come. Can be interrupted."""
        if not self._outlet.is_own_process:
            raise NameError(self._not_sent(name, f"process {os.getpid()} cannot ask for it: use it before"))
        answer = self._ask(name)
        if answer.error:
            raise NameError(self._not_sent(name, answer.error))
        try:
            return self._take(name, answer)
        except GpuReleaseError as error:
            raise NameError(self._not_sent(name, error.message)) from error

    def _not_sent(self, name: str, why: str) -> str:
        return not_sent(name, self._held[name], why)

    def _ask(self, name: str) -> Answer:
        if self._refused:
            return Answer(error=self._refused)
        self._asked += 1
        self._outlet.add_event(FETCH, {"name": name, "ask": self._asked})
        limit_s = _WAIT_S + self._held[name] / _SLOW_BYTES_PER_S
        deadline = time.monotonic() + limit_s
        while (body := self._answers.next_answer(deadline - time.monotonic())) is not None:
            answer = decode(body, Answer)
            if not answer.ask:
                self._refused = answer.error
                return answer
            if answer.ask == self._asked:
                return answer
        return Answer(error=f"the notebook did not answer within {limit_s:.0f} s")
