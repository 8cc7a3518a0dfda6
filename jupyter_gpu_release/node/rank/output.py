"""Output of a rank: Python-level text and displays go in order through one socket to the supervisor.

Text that bypasses Python (C code, ``os.system``, subprocesses) goes through pipes on descriptors 1 and 2,
which the supervisor reads before each frame. So that text printed *before* a subprocess starts cannot be
overtaken by it, an audit hook flushes and waits for the supervisor's answer whenever one is started.
"""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ...protocol.wire import encode
from ..ipc import frames
from ..ipc.frames import Kind, Output
from ..ipc.plain_values import plain_value
from ..ipc.text_journal import TextJournal

FLUSH_S = 0.02
#: after this long without output the next one is sent nearly at once (one print() writes several times)
_QUIET_S, _TOGETHER_S = 0.1, 0.001
#: a bell that was rung is heard sooner than this
_LATE_S = 0.5
#: a cell that prints faster than it can be sent waits here
_MOST_CHARS = 4 << 20
#: who waits for something to be sent looks this often whether it still can be
_LOOK_S = 1.0
_FLUSH, _SYNC, _FRAME = "flush!", "sync!", "frame!"
_AWAITED = frozenset({_FLUSH, _SYNC, _FRAME})
_SPAWNING = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "pty.spawn"})


class OutputSender:
    """Collects output; one thread sends it in batches of at most ``FLUSH_S``; falls silent after a fork.

    Producers share no lock with that thread: an interrupt may strike between any two bytecodes of theirs, and a
    lock left taken would silence the cell. They append to a deque and ring an eventfd, both atomic.

    ``on_lost`` is called, on any thread, when nothing can be sent any more: the cell has closed our descriptors (its
    own files may have their numbers now), or the supervisor is gone.
    """

    def __init__(
        self, sock: socket.socket, journal: TextJournal, synced: int, on_lost: Callable[[], object] = lambda: None
    ) -> None:
        self._on_lost = on_lost
        self._sock = sock
        self._synced = synced
        self._journal = journal
        self._pid = os.getpid()
        #: time, kind or stream, content, position in the journal
        self._queue: deque[tuple[float, str, Any, int]] = deque()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._urgent = os.eventfd(0, os.EFD_CLOEXEC)
        self._rung, self._rung_at_s = False, 0.0
        self._chars = 0
        self._sent_at_s = 0.0
        # not the thread's own `is_alive`: an interrupt in there makes it False for good (CPython 3.11, bpo-45274)
        self._is_over = False
        self._main = threading.get_ident()
        self._files = {descriptor: _identity(descriptor) for descriptor in self.descriptors}
        self._sender = threading.Thread(target=self._send_forever, name="jgr-output", daemon=True)
        self._sender.start()

    @property
    def descriptors(self) -> frozenset[int]:
        """The open files that it needs."""
        return frozenset((self._sock.fileno(), self._synced, self._bell, self._urgent))

    @property
    def is_own_process(self) -> bool:
        """False in a process that the cell forked: it must write to its descriptors instead."""
        return os.getpid() == self._pid

    def add_text(self, name: str, text: str) -> None:
        """Append text of the stream ``name``; consecutive text becomes one event."""
        self._queue.append((time.time(), name, text, self._note(name, text)))
        self._chars += len(text)
        if self._chars > _MOST_CHARS:
            self.flush()
        else:
            self._ring()

    def add_event(self, kind: str, data: dict[str, Any]) -> None:
        """Append one event that is not text."""
        self._queue.append((time.time(), kind, data, 0))
        self._ring()

    def _note(self, name: str, text: str) -> int:
        """The journal has one writer; text of other threads may be lost in a crash."""
        if threading.get_ident() != self._main:
            return 0
        end = self._journal.add_text(name, text)
        if not end:
            self.flush()
            self._journal.restart()
            end = self._journal.add_text(name, text)
        return end

    def flush(self) -> None:
        """Return when everything so far is sent."""
        self._wait_for(_FLUSH, b"")

    def sync(self) -> None:
        """Return when the supervisor has passed everything so far on."""
        self._wait_for(_SYNC, b"")

    def send_frame(self, kind: Kind, body: bytes = b"", *, wait: bool = True) -> None:
        """Send a frame of the run's life (RUNNING, ENDED, OUTCOME …) after everything so far."""
        self._wait_for(_FRAME, (kind, body), wait=wait)

    def _wait_for(self, what: str, detail: Any, *, wait: bool = True) -> None:
        if self.is_own_process and threading.get_ident() != self._sender.ident:
            done = threading.Lock()
            done.acquire()
            self._queue.append((0.0, what, (detail, done), 0))
            self._ring_for(self._urgent, self._bell)
            while wait and not done.acquire(timeout=_LOOK_S) and self._can_send():
                pass

    def _ring(self) -> None:
        now_s = time.monotonic()
        if not self._rung or now_s - self._rung_at_s > _LATE_S:  # late: an interrupt struck before the bell rang
            self._rung_at_s, self._rung = now_s, True
            self._ring_for(self._bell)

    def _ring_for(self, *bells: int) -> None:
        if self._can_send():
            for bell in bells:
                os.eventfd_write(bell, 1)

    def _can_send(self) -> bool:
        """Tell if our descriptors are open, and ours; calls ``on_lost`` if not."""
        try:
            can = not self._is_over and all(_identity(fd) == known for fd, known in self._files.items())
        except OSError:
            can = False
        if not can:
            self._on_lost()
        return can

    # ----------------------------------------------------------- below: the sending thread only
    def _send_forever(self) -> None:
        # what the cell's signals strike is the cell (a DataLoader's workers that end at once: their second SIGCHLD)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while True:
                self._send_next()
        except OSError:
            self._is_over = True
            self._on_lost()

    def _send_next(self) -> None:
        await_ring(self._bell)
        pause_s = FLUSH_S if time.monotonic() - self._sent_at_s < _QUIET_S else _TOGETHER_S
        if select.select([self._urgent], [], [], pause_s)[0]:
            await_ring(self._urgent)
        self._rung = False
        try:
            self._send_queued()
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - a batch is lost (for want of memory, say): that is said, and the next one goes
            os.eventfd_write(self._bell, 1)  # for what is left of the queue
            _write_all(2, b"an output was lost:\n" + traceback.format_exc().encode())
        self._sent_at_s = time.monotonic()

    def _send_queued(self) -> None:
        batch: list[Output] = []
        position = 0
        self._chars = 0
        for _ in range(len(self._queue)):
            at_s, what, detail, end = self._queue.popleft()
            position = end or position
            if what in _AWAITED:
                try:
                    self._send_batch(batch, position)
                finally:  # somebody waits for it, come what may, and may begin the journal anew
                    position = 0
                    self._send_awaited(what, *detail)
            elif isinstance(detail, str):
                _append_text(batch, at_s, what, detail)
            else:
                batch.append(Output(at_s, what, detail))
        self._send_batch(batch, position)

    def _send_batch(self, batch: list[Output], position: int) -> None:
        if batch:
            for output in batch:
                if output.kind == "stream":
                    output.data["text"] = "".join(output.data["text"])  # type: ignore[arg-type]
            frames.send_frame(self._sock, Kind.OUTPUT, _encoded(batch))
            self._journal.note_sent(position)
            batch.clear()

    def _send_awaited(self, what: str, detail: Any, done: Any) -> None:
        try:
            if what == _SYNC:
                frames.send_frame(self._sock, Kind.SYNC)
                await_ring(self._synced)
            elif what == _FRAME:
                frames.send_frame(self._sock, *detail)
        finally:
            done.release()


def _identity(descriptor: int) -> tuple[int, int, int]:
    """Two descriptors of one file have the same; raises ``OSError`` where there is none."""
    file = os.fstat(descriptor)
    return file.st_dev, file.st_ino, stat.S_IFMT(file.st_mode)


def await_ring(bell: int) -> None:
    """Wait for an eventfd to be raised, and take it down; ``os.eventfd_read`` fails when a signal strikes."""
    os.read(bell, 8)


def _encoded(batch: list[Output]) -> bytes:
    """Displays and errors hold values of the user's own types; what they cannot say exactly is said as text."""
    try:
        return encode(batch)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return encode([_plain_output(output) for output in batch])


def _plain_output(output: Output) -> Output:
    try:
        return Output(output.at_s, output.kind, plain_value(output.data))
    except Exception as error:  # noqa: BLE001 - the user's own __str__ and the like; the run must go on
        text = f"an output could not be shown: {type(error).__name__}\n"
        return Output(output.at_s, "stream", {"name": "stderr", "text": text})


def _append_text(batch: list[Output], at_s: float, name: str, text: str) -> None:
    last = batch[-1] if batch else None
    if last is not None and last.kind == "stream" and last.data["name"] == name:
        last.data["text"].append(text)  # type: ignore[attr-defined]
    else:
        batch.append(Output(at_s, "stream", {"name": name, "text": [text]}))


class OutStream(io.TextIOBase):
    """``sys.stdout`` / ``sys.stderr`` of a rank."""

    encoding = "utf-8"
    errors = "replace"
    is_terminal = False

    def __init__(self, outlet: OutputSender, name: str, descriptor: int) -> None:
        self._outlet = outlet
        self._name = name
        self._descriptor = descriptor

    @property
    def name(self) -> str:
        """``<stdout>`` or ``<stderr>``."""
        return f"<{self._name}>"

    @property
    def buffer(self) -> io.BufferedIOBase:
        """Binary twin, as of a real text file (``sys.stdout.buffer.write``)."""
        self._outlet.sync()
        return _Binary(self._descriptor)

    def fileno(self) -> int:
        """The pipe's descriptor, for subprocesses and C code."""
        return self._descriptor

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """Answer as the notebook's own stream does."""
        return self.is_terminal

    def write(self, text: str) -> int:
        """Queue ``text``; in a forked child it goes to the descriptor at once."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not text:
            return 0
        if self._outlet.is_own_process:
            self._outlet.add_text(self._name, text)
        else:
            _write_all(self._descriptor, text.encode(self.encoding, "replace"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Queue all ``lines``."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Send what is queued."""
        if self._outlet.is_own_process:
            self._outlet.flush()


class _Binary(io.RawIOBase, io.BufferedIOBase):  # type: ignore[misc]
    """Unbuffered bytes to a descriptor that stays open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return _write_all(self._descriptor, memoryview(data).cast("B"))


def _write_all(descriptor: int, data: bytes | memoryview) -> int:
    """Write all of ``data``, also where some program has made the pipe non-blocking; returns how much that was."""
    done = 0
    while done < len(data):
        try:
            done += os.write(descriptor, data[done:])
        except BlockingIOError:
            select.select([], [descriptor], [])
    return done


def keep_order_with_subprocesses(outlet: OutputSender) -> None:
    """Install the audit hook described above (it lives as long as the rank)."""
    busy = False

    def hook(event: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal busy
        if event in _SPAWNING and not busy and outlet.is_own_process:
            busy = True
            try:
                outlet.sync()
            finally:
                busy = False

    sys.addaudithook(hook)
