"""Answers of the waiting kernel or script, as they arrive in a rank."""

from __future__ import annotations

import queue
import socket
import threading

from ..ipc import frames
from ..ipc.frames import Kind


class AnswerQueue:
    """A thread of its own reads ``sock``, from the first question on: an interrupt tears no frame."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None

    def listen(self) -> None:
        """Begin to read; call before anything is asked."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._read_forever, name="jgr-answers", daemon=True)
            self._reader.start()

    def get(self, limit_s: float) -> bytes | None:
        """The next answer; None when none comes within ``limit_s``. Can be interrupted."""
        try:
            return self._answers.get(timeout=max(limit_s, 0.0))
        except queue.Empty:
            return None

    def _read_forever(self) -> None:
        while (frame := frames.receive(self._sock)) is not None:
            if frame[0] is Kind.ANSWER:
                self._answers.put(frame[1])
