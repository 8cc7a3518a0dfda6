"""Output of a rank: Python-level text and displays go in order through one socket to the supervisor.

Text that bypasses Python (C code, ``os.system``, subprocesses) goes through pipes on descriptors 1 and 2,
which the supervisor reads before each frame. So that text printed *before* a subprocess starts cannot be
overtaken by it, an audit hook flushes and waits for the supervisor's answer whenever one is started.
"""

from __future__ import annotations

import io
import os
import socket
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from ..core.messages import encode
from . import frames
from .frames import Kind, Output

FLUSH_S = 0.02
_FLUSH_CHARS = 1 << 18
_SPAWNING = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "pty.spawn"})


class Outlet:
    """Collects output and sends it in batches of at most ``FLUSH_S``; thread-safe; falls silent after a fork."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._pending: list[Output] = []
        self._text: list[str] = []
        self._text_name = ""
        self._text_chars = 0
        self._last_flush = 0.0
        threading.Thread(target=self._flush_forever, name="jgr-output", daemon=True).start()

    @property
    def is_ours(self) -> bool:
        """False in a process that the cell forked: it must write to its descriptors instead."""
        return os.getpid() == self._pid

    def text(self, name: str, text: str) -> None:
        """Append text of the stream ``name``; consecutive text becomes one event."""
        with self._lock:
            if self._text_name != name:
                self._close_text()
                self._text_name = name
            self._text.append(text)
            self._text_chars += len(text)
            full = self._text_chars > _FLUSH_CHARS
            if full or (not self._wake.is_set() and time.monotonic() - self._last_flush > 5 * FLUSH_S):
                self.flush()
            else:
                self._wake.set()

    def put(self, kind: str, data: dict[str, Any]) -> None:
        """Append one event that is not text."""
        with self._lock:
            self._close_text()
            self._pending.append(Output(time.time(), kind, data))
            self._wake.set()

    def flush(self) -> None:
        """Send what is there now."""
        with self._lock:
            self._close_text()
            self._wake.clear()
            self._last_flush = time.monotonic()
            if self._pending:
                batch, self._pending = self._pending, []
                self._send(Kind.OUTPUT, encode(batch))

    def sync(self) -> None:
        """Flush and wait until the supervisor has passed everything on."""
        with self._lock:
            self.flush()
            self._send(Kind.SYNC)
            self._sock.recv(1)

    def frame(self, kind: Kind, body: bytes = b"") -> None:
        """Flush, then send a frame of the run's life (RUNNING, ENDED, OUTCOME …)."""
        with self._lock:
            self.flush()
            self._send(kind, body)

    def _send(self, kind: Kind, body: bytes = b"") -> None:
        if self.is_ours:
            frames.send(self._sock, kind, body)

    def _close_text(self) -> None:
        if self._text:
            text = "".join(self._text)
            self._pending.append(Output(time.time(), "stream", {"name": self._text_name, "text": text}))
            self._text, self._text_chars = [], 0

    def _flush_forever(self) -> None:
        while True:
            self._wake.wait()
            time.sleep(FLUSH_S)
            try:
                self.flush()
            except OSError:
                return


class OutStream(io.TextIOBase):
    """``sys.stdout`` / ``sys.stderr`` of a rank."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, outlet: Outlet, name: str, descriptor: int) -> None:
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
        """Never a terminal."""
        return False

    def write(self, text: str) -> int:
        """Queue ``text``; in a forked child it goes to the descriptor at once."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if not text:
            return 0
        if self._outlet.is_ours:
            self._outlet.text(self._name, text)
        else:
            os.write(self._descriptor, text.encode(self.encoding, "replace"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Queue all ``lines``."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Send what is queued."""
        if self._outlet.is_ours:
            self._outlet.flush()


class _Binary(io.RawIOBase, io.BufferedIOBase):  # type: ignore[misc]
    """Unbuffered bytes to a descriptor that stays open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.write(self._descriptor, view[done:])
        return done


def keep_order_with_subprocesses(outlet: Outlet) -> None:
    """Install the audit hook described above (it lives as long as the rank)."""
    busy = False

    def hook(event: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal busy
        if event in _SPAWNING and not busy and outlet.is_ours:
            busy = True
            try:
                outlet.sync()
            finally:
                busy = False

    sys.addaudithook(hook)


class WrittenFiles:
    """Remembers the files that Python code opened for writing (audit event ``open``)."""

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}
        self._pid = os.getpid()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or os.getpid() != self._pid:
            return
        path, mode, flags = arguments
        writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool(flags & (os.O_WRONLY | os.O_RDWR))
        if writes and isinstance(path, (str, os.PathLike)):
            self.paths[os.path.abspath(path)] = None
