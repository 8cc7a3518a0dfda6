"""A fork of the rank that keeps large results in its memory and writes them once the GPU is free.

The fork shares the rank's memory copy-on-write, so nothing is copied before the rank ends. It closes the
device's descriptors first, never touches a framework, and only writes plain host buffers.

It belongs to nobody: supervisor, fork server and agent may die, it goes on and leaves its record in the spool. It ends
when the results are on the store, or spilled to the node's own disk (the mover takes them from there), or when it is
killed because they are given up.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import threading
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import msgspec

from ...errors import StoreError
from ...host import process_control
from ...protocol.node import AttemptId
from ...protocol.runs import Outcome, PersistWait
from ...protocol.wire import encode
from ...settings.built_in import BUILT_IN
from ...store import files
from ...units import format_bytes
from ..ipc.frames import RankOrder, SpoolConfig
from .spool import BackOff, SpoolEntry, SpoolRecord, short_address, wait_after_failure, write_values

#: sent by the agent: the node's budget of memory is used up, or the cluster ends
SPILL_SIGNAL = signal.SIGUSR1
_DONE_SIGNAL = signal.SIGUSR2
_SIGNALS = (SPILL_SIGNAL, _DONE_SIGNAL, signal.SIGTERM)
_BYTES_A_S = 1 << 30
_LONGEST_WAIT_S = 0.05
#: trying has failed for so long: the results go to the node's own disk
_SPILL_AFTER_S: float = BUILT_IN["spill_after_s"].default
#: a try that gets nowhere for so long counts as failed
_HUNG_S = 60.0
_LOOK_S = 1.0
_LIMITS = "end what else you run on the node, or ask the operator for a higher limit (`ulimit -a` in a cell shows all)"
#: a persister that has not closed the rank's files after this is in trouble
_CLOSING_S = 1.0


@dataclass(frozen=True)
class ForkedPersister:
    """The persister, as the rank sees it. ``line`` ends when it has closed the rank's files; -1: there is none."""

    pid: int
    line: int

    def wait_until_closed(self) -> None:
        """Wait until it has let go of the ports, locks and devices that it got with the fork."""
        if self.line >= 0:
            poll = select.poll()
            poll.register(self.line, select.POLLIN)
            poll.poll(_CLOSING_S * 1000)


def fork_persister(
    order: RankOrder, outcome: Outcome, stream: bytes, buffers: Sequence[Any], size: int
) -> ForkedPersister:
    """Fork; the child writes the values once the rank is gone and does not return.

    It waits a twentieth of the time that writing ``size`` bytes takes: giving the GPU back gets the cores first.
    Raises :class:`StoreError` where the limits of this process (``ulimit``) leave no way to keep the values.
    """
    require_file_size([stream, *buffers])
    rank, name = os.getpid(), process_control.name_of("self")
    line = held = -1
    with contextlib.suppress(OSError):  # the cell has as many files open as it may
        line, held = os.pipe()
    process_control.name_this(
        process_control.PERSISTER
    )  # ahead of the fork: whoever sweeps knows it from its first moment
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = _fork(name)
    if pid:
        process_control.name_this(name)
        if held >= 0:
            os.close(held)
        return ForkedPersister(pid, line)
    entry = SpoolEntry(Path(order.keep.spool), AttemptId(order.run, order.attempt))
    try:
        _leave_the_rank()  # at full speed: the release waits for the descriptors that it closes
        process_control.yield_to_others()
        Persister(order.keep, entry, Path(order.folder), outcome, stream, buffers, size).run(rank)
    except BaseException:  # noqa: BLE001 - a defect of ours: its text is beside the record
        with contextlib.suppress(OSError):
            (entry.folder / "crash.log").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def _fork(name: str) -> int:
    try:
        return os.fork()
    except OSError as error:
        process_control.name_this(name)
        raise StoreError(f"no process can be made that keeps the results: {error.strerror}", hint=_LIMITS) from error


def require_file_size(parts: Sequence[Any]) -> None:
    """Raise :class:`StoreError` where ``ulimit`` forbids a file that has them all."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    largest = max(memoryview(part).nbytes for part in parts)
    if 0 <= most < largest:
        needs, may = format_bytes(largest), format_bytes(most)
        raise StoreError(f"the results need a file of {needs}, and a file may have {may} here (`fsize`)", hint=_LIMITS)


def _leave_the_rank() -> None:
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):  # the cell may have lowered its own
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (hard, hard))
    gc.disable()  # nobody's finalizers run here
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(_SIGNALS))
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError):  # the rank is the system's first victim for want of memory, its results are not
        Path("/proc/self/oom_score_adj").write_text("0")
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # devices, the supervisor's pipes
    os.close(0)  # the cell may have as many open as it may: there is room for one more now
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)


class _Try:
    """One try to write, in a thread: a filesystem that hangs must not keep the process from spilling."""

    def __init__(self, target: Path, stream: bytes, buffers: Sequence[Any], bytes_per_s: int) -> None:
        self.digest = ""
        self.error: StoreError | None = None
        self.is_over = False
        self._pace = files.Pace(bytes_per_s)
        self._seen, self._seen_at = -1, time.monotonic()
        self._work = (target, stream, buffers)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.digest = write_values(*self._work, self._pace)
        except StoreError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - a thread's entry point: whatever it is, there was no success
            self.error = StoreError(
                f"{type(error).__name__}: {error}" if not isinstance(error, OSError) else str(error)
            )
        self.is_over = True
        os.kill(os.getpid(), _DONE_SIGNAL)

    def hangs(self) -> bool:
        """Tell if nothing was written for a long time."""
        if self._pace.written != self._seen:
            self._seen, self._seen_at = self._pace.written, time.monotonic()
        return not self.is_over and time.monotonic() - self._seen_at > _HUNG_S


class Persister:
    """Keeps the bytes until they are on the store or spilled."""

    def __init__(
        self,
        order: SpoolConfig,
        entry: SpoolEntry,
        folder: Path,
        outcome: Outcome,
        stream: bytes,
        buffers: Sequence[Any],
        size: int,
    ) -> None:
        self._order = order
        self._entry = entry
        self._values = (stream, buffers)
        record = SpoolRecord(
            entry.attempt_id.run,
            order.node,
            str(folder),
            size,
            pid=os.getpid(),
            outcome=outcome,
            attempt=entry.attempt_id.attempt,
        )
        self._target = record.target
        self._waiting = msgspec.structs.replace(record, waits_for=PersistWait(path=str(record.target), bytes=size))
        self._try: _Try | None = None
        self._back_off, self._spill_back_off = BackOff(), BackOff()
        self._next_try = self._next_spill = 0.0
        self._failing_since: float | None = None
        self._must_leave = False

    def run(self, rank: int) -> None:
        """Keep the results, from the rank's end until the bytes are elsewhere."""
        self._tell()
        while os.getppid() == rank:
            sleep(0.001)
        sleep(min(_LONGEST_WAIT_S, self._waiting.bytes / _BYTES_A_S / 20))
        while not self._step():
            got = signal.sigtimedwait(_SIGNALS, self._pause_s())
            if got is not None and got.si_signo != _DONE_SIGNAL:
                self._must_leave = True

    def _step(self) -> bool:
        """Do what is due; True once the bytes are elsewhere."""
        now = time.monotonic()
        tried = self._try
        if tried is not None and tried.is_over:
            self._try = None
            if tried.error is None:
                self._tell(state="durable", digest=tried.digest, waits_for=None)
                return True
            self._failing_since = self._failing_since or now
            self._note_failure(tried.error)
        elif tried is not None and tried.hangs() and self._failing_since is None:
            self._failing_since = now - _SPILL_AFTER_S
            self._note_failure(f"no progress for {_HUNG_S:.0f} s")
        if self._shall_spill(now) and self._spill():
            return True
        if self._try is None and time.monotonic() >= self._next_try:
            self._try = _Try(self._target, *self._values, self._order.bytes_per_s)
        return False

    def _note_failure(self, error: StoreError | str) -> None:
        wait, pause_s = wait_after_failure(self._target, self._waiting.bytes, error, "memory", self._back_off)
        self._next_try = time.monotonic() + pause_s
        self._tell(waits_for=wait)

    def _shall_spill(self, now: float) -> bool:
        if not self._order.has_cluster:
            self._must_leave = True
        failing = self._failing_since is not None and now - self._failing_since >= _SPILL_AFTER_S
        return (self._must_leave or failing) and now >= self._next_spill

    def _spill(self) -> bool:
        try:
            digest = self._entry.spill_values(*self._values)
            wait = self._waiting.waits_for
            kept = msgspec.structs.replace(wait, kept="disk") if wait is not None else None
            self._tell(state="spilled", spilled_digest=digest, waits_for=kept, durable=True, must=True)
        except (StoreError, OSError):
            self._next_spill = time.monotonic() + self._spill_back_off.next_pause_s()
            return False
        return True

    def _pause_s(self) -> float:
        return min(_LOOK_S, max(0.0, self._next_try - time.monotonic())) if self._try is None else _LOOK_S

    def _tell(self, *, durable: bool = False, must: bool = False, **facts: Any) -> None:
        """Write the record and tell the agent; ``must``: a record that cannot be written is an error."""
        self._waiting = msgspec.structs.replace(self._waiting, **facts)
        try:
            self._entry.write_record(self._waiting, durable=durable)
        except StoreError:  # the local disk is full
            if must:
                self._waiting = msgspec.structs.replace(self._waiting, state="memory", spilled_digest="")
                raise
        notify_agent(self._order, self._waiting)


def notify_agent(order: SpoolConfig, waiting: SpoolRecord) -> None:
    """Tell the agent, if there is one; it reads the record where it was not told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        for told in (waiting, msgspec.structs.replace(waiting, outcome=None)):  # an outcome may be too long
            with contextlib.suppress(OSError), short_address(order.socket) as address:
                sock.sendto(encode(told), address)
                return
