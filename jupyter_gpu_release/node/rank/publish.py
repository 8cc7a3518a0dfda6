"""``gpu_release.publish``: the latest values of a running cell on their way to the notebook.

The cell's thread only serialises, and spends no more than a twentieth of its time on it; another thread sends the
latest of each name a few times a second. Nothing here fails the cell, and the two share no lock (an interrupt may
strike in between).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Mapping
from time import sleep
from typing import Any

import msgspec

from ...errors import StoreError
from ...protocol.cell import Graph
from ...protocol.events import Publication
from ...protocol.wire import encode
from ...serialization import codec, rebuild
from ...store.files import make_store_folder, write_atomic
from ...store.layout import RunPaths, of_attempt
from ...store.run_folders import require_store
from .output import OutputSender, await_ring

_PAUSE_S = 0.25
#: a store that has not taken the last values by then hangs
_LAST_S = 2.0
#: of the cell's time at most 1 / so much is spent on serialising
_SHARE = 20
#: larger ones go through the store: the log of the run's output keeps all that were ever sent
_INLINE_BYTES = 2048
_LONGEST_TEXT = 1024


class Publisher:
    """``paths``: of the run, for its attempt; ``rank``: only rank 0 publishes."""

    def __init__(self, outlet: OutputSender, realm: rebuild.NamespaceInfo, paths: RunPaths, rank: int) -> None:
        self._outlet = outlet
        self._realm = realm
        self._folder = paths.published
        self._attempt = paths.attempt
        self._is_first_rank = rank == 0
        #: name → latest, ready to be sent
        self._ready: dict[str, Publication | Graph] = {}
        #: name → value whose turn has not come
        self._later: dict[str, Any] = {}
        #: name → monotonic time from which it may be serialised again
        self._from: dict[str, float] = {}
        self._said: set[str] = set()
        self._sending = threading.Lock()
        self._bell = -1

    # ------------------------------------------------------------------------------- the cell's thread
    def publish(self, values: Mapping[str, Any]) -> None:
        """Take over the latest values; returns at once."""
        if not self._is_first_rank or not self._outlet.is_own_process:
            return
        self._later.update(values)
        self._serialise(time.monotonic())
        if self._ready:
            self._ring()

    def finish(self) -> bool:
        """The cell is over: what was held back is sent now; False: its store does not answer, and the GPU waits."""
        self._serialise(float("inf"))
        if not self._ready and not self._sending.locked():
            return True
        last = threading.Thread(target=self._send_ready, name="jgr-publish", daemon=True)
        last.start()
        last.join(_LAST_S)
        return not last.is_alive()

    def _serialise(self, now: float) -> None:
        for name in list(self._later):
            value = self._later[name]
            if _is_plain(value):
                self._ready[name] = Publication(name, value)
                del self._later[name]
            elif now >= self._from.get(name, 0.0):
                del self._later[name]
                began = time.monotonic()
                self._dump(name, value)
                ended = time.monotonic()
                self._from[name] = ended + (ended - began) * (_SHARE - 1)

    def _dump(self, name: str, value: Any) -> None:
        try:
            dump = codec.dump({name: value}, self._realm)
        except Exception as error:  # noqa: BLE001 - foreign reducers
            self._say(name, f"{type(error).__name__}: {error}")
            return
        if name in dump.failed:
            self._say(name, str(dump.failed[name]))
            return
        # copied: the cell goes on changing what the buffers look at
        self._ready[name] = Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers])

    def _ring(self) -> None:
        if self._bell < 0:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC)
            threading.Thread(target=self._send_forever, name="jgr-publish", daemon=True).start()
        os.eventfd_write(self._bell, 1)

    # -------------------------------------------------------------------------------- the other thread
    def _send_forever(self) -> None:
        while True:
            await_ring(self._bell)
            self._send_ready()
            sleep(_PAUSE_S)

    def _send_ready(self) -> None:
        with self._sending:
            while self._ready:
                with contextlib.suppress(KeyError):
                    self._send_one(*self._ready.popitem())

    def _send_one(self, name: str, what: Publication | Graph) -> None:
        try:
            self._send(name, what)
        except Exception as error:  # noqa: BLE001 - the thread goes on: for want of memory, say, this one is lost
            self._say(name, f"{type(error).__name__}: {error}")

    def _send(self, name: str, what: Publication | Graph) -> None:
        if isinstance(what, Graph):
            body = encode(what)
            if len(body) <= _INLINE_BYTES:
                what = Publication(name, graph=what)
            else:
                try:
                    what = self._write(name, body)
                except (StoreError, OSError) as error:
                    self._say(name, str(error))
                    return
        self._outlet.add_event("published", msgspec.to_builtins(what, builtin_types=(bytes,)))

    def _write(self, name: str, body: bytes) -> Publication:
        require_store(self._folder.parent.parent.parent)
        make_store_folder(self._folder)
        file = of_attempt(name, self._attempt)
        write_atomic(self._folder / file, [body], durable=False)
        return Publication(name, file=file, digest=hashlib.blake2b(body, digest_size=16).hexdigest())

    def _say(self, name: str, reason: str) -> None:
        if name not in self._said:
            self._said.add(name)
            self._outlet.add_event("note", {"text": f"`{name}` could not be published: {reason}"})


def _is_plain(value: Any) -> bool:
    """Values that a message holds as they are; exactly these types, so that what arrives is what was sent."""
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return value is None or type(value) in (bool, float) or (type(value) is str and len(value) <= _LONGEST_TEXT)
