"""Moves results that were spilled to the node's own disk to the store, as soon as that works again.

One small process for a node (``python -m jupyter_gpu_release.node.results.mover ORDER``), started by the agent when
there is
something to move; it ends when there is nothing left. Killed at any point, the next one begins the run's file anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from ...errors import GpuReleaseError
from ...host import process_control
from ...host.environment import for_cluster
from ...protocol.node import AttemptId
from ...store import files
from ...store.files import make_private_folder
from ..ipc.frames import SpoolConfig
from .persister import notify_agent
from .spool import BackOff, SpoolEntry, SpoolRecord, spool_entries, wait_after_failure, write_values

_LOOK_S = 0.5


def start_mover(order: SpoolConfig, markers: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the node's mover; ``markers``: environment variables by which sweeps find it.

    Returns once the child has closed the files that it inherits, which a store that hangs keeps from being closed.
    """
    subprocess._USE_VFORK = False  # type: ignore[misc]  # else all threads of this process wait for that, too
    return subprocess.Popen(
        [sys.executable, "-m", "jupyter_gpu_release.node.results.mover", msgspec.json.encode(order).decode()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        env=for_cluster(os.environ) | markers,
    )


def main() -> int:
    """Move what is there, one run after the other, again and again; 0 when nothing is left."""
    order = msgspec.json.decode(sys.argv[1], type=SpoolConfig)
    if order.uid:
        from ...host.privileges import drop_privileges

        drop_privileges(order.uid, order.gid)
    process_control.name_this(process_control.MOVER)
    order.expect_store()
    root = Path(order.spool)
    make_private_folder(root)
    lock = os.open(root / "mover.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    mover = Mover(order)
    while order.has_cluster and mover.move_due():
        time.sleep(_LOOK_S)
    return 0


class Mover:
    """Remembers when each run is to be tried again."""

    def __init__(self, order: SpoolConfig) -> None:
        self._order = order
        self._pace = files.Pace(order.bytes_per_s)
        self._back_offs: dict[AttemptId, BackOff] = {}
        self._next: dict[AttemptId, float] = {}

    def move_due(self) -> int:
        """Try what is due; returns how many runs are still spilled."""
        left = 0
        for entry in spool_entries(Path(self._order.spool)):
            waiting = entry.read_record()
            if waiting is None or waiting.state != "spilled":
                continue
            left += 1
            if time.monotonic() >= self._next.get(waiting.attempt_id, 0.0) and self._move(entry, waiting):
                left -= 1
        return left

    def _move(self, entry: SpoolEntry, waiting: SpoolRecord) -> bool:
        target = waiting.target
        try:
            graph = entry.open_spilled(waiting.spilled_digest)
            digest = write_values(target, graph.stream, graph.buffers, self._pace)
            moved = msgspec.structs.replace(waiting, state="durable", digest=digest, waits_for=None)
            self._tell(entry, moved)
        except (GpuReleaseError, OSError) as error:
            back_off = self._back_offs.setdefault(waiting.attempt_id, BackOff())
            wait, pause_s = wait_after_failure(target, waiting.bytes, error, "disk", back_off)
            self._next[waiting.attempt_id] = time.monotonic() + pause_s
            with contextlib.suppress(GpuReleaseError):
                self._tell(entry, msgspec.structs.replace(waiting, waits_for=wait))
            return False
        entry.drop_spilled()
        return True

    def _tell(self, entry: SpoolEntry, waiting: SpoolRecord) -> None:
        if entry.folder.is_dir():  # else it was given up meanwhile
            entry.write_record(waiting)
        notify_agent(self._order, waiting)


if __name__ == "__main__":
    sys.exit(main())
