"""Files of results on their way.

``<spool>/<host>/<run>/`` (of a later attempt ``<run>.<attempt>/``): ``record``, who keeps the bytes and how far they
are (the persister writes it, then the mover; with the agent gone it tells the next one everything), ``outcome`` (the
agent's: the whole outcome of the attempt), and once they are spilled ``store/runs/<run>/values.graph`` with
``store/blobs``. The agent removes the folder when the gateway has recorded the attempt's end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import StoreError
from ...protocol.node import AttemptId
from ...protocol.runs import Outcome, PersistWait
from ...protocol.states import is_run_id
from ...protocol.wire import decode, encode
from ...store import files
from ...store.files import make_private_folder, read_plain, write_atomic
from ...store.graph_file import OpenGraph, open_graph, write_graph
from ...store.layout import RunPaths
from ...store.run_folders import require_store

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


def default_spool() -> str:
    """Spool for nodes whose operator named none: a folder that survives restarts of cluster and machine."""
    return f"/var/tmp/jupyter-gpu-{os.getuid()}"


#: bytes in the address of a Unix socket, without the zero at its end
_LONGEST_ADDRESS = 107


@contextlib.contextmanager
def short_address(path: Path) -> Iterator[str]:
    """A socket's address by a path that may be longer than the system takes; raises OSError."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class SpoolRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record. ``state``: ``memory`` (of process ``pid``), ``spilled``, ``durable`` (on the store)."""

    run: str
    node: str
    #: the run's folder on the store, as the node sees it
    folder: str
    bytes: int
    state: str = "memory"
    pid: int = 0
    #: as its rank left it; None where the agent has the whole one
    outcome: Outcome | None = None
    waits_for: PersistWait | None = None
    #: of the file on the store once that is durable
    digest: str = ""
    spilled_digest: str = ""
    attempt: int = 0

    @property
    def attempt_id(self) -> AttemptId:
        """The attempt whose results they are."""
        return AttemptId(self.run, self.attempt)

    @property
    def target(self) -> Path:
        """The file on the store that the results go to: no other attempt's."""
        return RunPaths(Path(self.folder), self.attempt).values


class BackOff:
    """Pauses between tries: 1, 2, 4 … 30 s."""

    def __init__(self) -> None:
        self.tries = 0

    def next_pause_s(self) -> float:
        """Count a failure; returns the seconds until the next try."""
        self.tries += 1
        return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self.tries - 1, 10))


class SpoolEntry:
    """The files of one attempt at a run."""

    def __init__(self, root: Path, attempt_id: AttemptId, *, uid: int = 0) -> None:
        """``uid``: whose folder ``root`` is, where each user has one; what is done there is done as that user."""
        self.attempt_id = attempt_id
        self.uid = uid
        self.folder = root / str(attempt_id)
        self._record = self.folder / "record"
        self._outcome = self.folder / "outcome"
        self._spilled = RunPaths(self.folder / "store" / "runs" / attempt_id.run)
        self._owner: int | None = None

    def write_record(self, waiting: SpoolRecord, *, durable: bool = False) -> None:
        """Replace the record; raises :class:`StoreError`."""
        with self._rights():
            make_private_folder(self.folder)
            write_atomic(self._record, [encode(waiting)], durable=durable)

    def read_record(self) -> SpoolRecord | None:
        """The record; None when there is none that can be read."""
        with contextlib.suppress(OSError, StoreError, msgspec.MsgspecError), self._rights():
            return decode(read_plain(self._record), SpoolRecord)
        return None

    def write_outcome(self, outcome: Outcome) -> None:
        """Write what the agent knows of the run's end; raises :class:`StoreError`."""
        with self._rights():
            make_private_folder(self.folder)
            write_atomic(self._outcome, [encode(outcome)], durable=False)

    def read_outcome(self) -> Outcome | None:
        """Return what the agent knew, else what the rank said; None: nothing."""
        with contextlib.suppress(OSError, StoreError, msgspec.MsgspecError), self._rights():
            return decode(read_plain(self._outcome), Outcome)
        waiting = self.read_record()
        return waiting.outcome if waiting is not None else None

    def spill_values(self, stream: bytes, buffers: Sequence[Any]) -> str:
        """Write the values beside the record, durably; returns their digest. Raises :class:`StoreError`."""
        with self._rights():
            make_private_folder(self._spilled.folder)
            try:
                return write_graph(self._spilled.values, stream, buffers)
            except StoreError:
                shutil.rmtree(self.folder / "store", ignore_errors=True)
                raise

    def open_spilled(self, digest: str) -> OpenGraph:
        """The spilled values; raises :class:`StoreError`."""
        return open_graph(self._spilled.values, digest)

    def drop_spilled(self) -> None:
        """Remove the values, keep the record."""
        with self._rights():
            shutil.rmtree(self.folder / "store", ignore_errors=True)

    def _rights(self) -> contextlib.AbstractContextManager[None]:
        if not self.uid:
            return contextlib.nullcontext()
        from ...store.private_stores import acting_for

        return acting_for(self.folder)

    def claim(self) -> bool:
        """Become the one agent that looks after this run, for the life of this process."""
        with contextlib.suppress(OSError, StoreError), self._rights():
            make_private_folder(self.folder)
            self._owner = os.open(self.folder / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def remove_files(self) -> None:
        """Forget the run."""
        with contextlib.suppress(StoreError), self._rights():
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


def spool_entries(root: Path, *, uid: int = 0) -> list[SpoolEntry]:
    """All attempts in the spool of this host (of one user, where each has a folder there)."""
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    found = [attempt_id for name in names if str(attempt_id := AttemptId.named(name)) == name]
    return [SpoolEntry(root, attempt_id, uid=uid) for attempt_id in found if is_run_id(attempt_id.run)]


def write_values(target: Path, stream: bytes, buffers: Sequence[Any], pace: files.Pace = files.UNLIMITED) -> str:
    """One try to write an attempt's values to the store; returns their digest, raises :class:`StoreError`.

    A store that is not there (unmounted, renamed) is not made anew: the results would be hidden when it comes back.
    """
    folder = target.parent
    require_store(folder.parent.parent)
    if not folder.is_dir():
        make_private_folder(folder)
    with contextlib.suppress(OSError):  # of a writer that was ended: there is one at a time
        for name in os.listdir(folder):
            if name.startswith(f".{target.name}.") and name.endswith(".tmp"):
                (folder / name).unlink()
    return write_graph(target, stream, buffers, pace=pace)


def wait_after_failure(
    target: Path, size: int, error: Exception | str, kept: str, back_off: BackOff
) -> tuple[PersistWait, float]:
    """Return what a run waits for after a failed try, and the seconds until the next one."""
    pause_s = back_off.next_pause_s()
    wait = PersistWait(
        path=str(target),
        bytes=size,
        reason=_reason(error),
        kept=kept,
        free_bytes=None if isinstance(error, str) else _free_bytes(target.parent),
        tries=back_off.tries,
        next_try_at=time.time() + pause_s,
    )
    return wait, pause_s


def _reason(error: Exception | str) -> str:
    cause = getattr(error, "__cause__", None)
    if isinstance(cause, OSError) and cause.errno not in (None, errno.ENOENT):
        return cause.strerror or str(cause)
    return getattr(error, "message", "") or str(error)


def _free_bytes(folder: Path) -> int | None:
    try:
        facts = os.statvfs(folder)
    except OSError:
        return None
    return facts.f_bavail * facts.f_frsize
