"""A fork of the rank that saves the cell as it is at this moment, while the cell goes on."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ....adapters.adapter import ImmovableError
from ....adapters.registry import loaded_adapters
from ....errors import GpuReleaseError
from ....host import process_control
from ....protocol.runs import Save
from ....protocol.wire import decode, encode
from ....serialization.exceptions import error_text
from ...ipc.frames import Stay
from .run_files import StoreUnfitError

_NAME = "jgr-saver"
_Made = TypeVar("_Made")


def tried(act: Callable[[], _Made]) -> tuple[_Made | None, Stay | None]:
    """Do it: what it makes, or why it failed. Others wait for an answer, and no error of a save is ever the cell's."""
    try:
        return act(), None
    except Exception as error:  # noqa: BLE001 - reducers are foreign code
        return None, stay_of(error)


def stay_of(error: Exception) -> Stay:
    """Reason why a cell that could not be saved goes on; an error that nobody foresaw is never the cell's."""
    if isinstance(error, ImmovableError):
        return Stay(str(error))
    if isinstance(error, StoreUnfitError | GpuReleaseError | OSError):  # the last: no memory for a fork
        return Stay(str(error), for_now=True)
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(place.filename)}, line {place.lineno}"
    return Stay(f"internal error in {where}: {type(error).__name__}: {error_text(error)}", for_now=True)


class SaverReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """End of a saver's work: a durable save, a reason why there is none, or neither (a trial that went well)."""

    save: Save | None = None
    stay: Stay | None = None


class Saver:
    """``work`` is done in the fork; ``on_report`` gets what it returned, on a thread of ours."""

    def __init__(self, work: Callable[[], SaverReport], on_report: Callable[[SaverReport], None]) -> None:
        self._on_report = on_report
        self._is_dismissed = False
        rank = os.getpid()
        reads, writes = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            _save(rank, writes, work)
        os.close(writes)
        self._thread = threading.Thread(target=self._follow, args=(reads,), name=_NAME, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Tell if it has ended, and its report was heard."""
        return not self._thread.is_alive()

    def dismiss(self) -> None:
        """End it: what it has not finished is of no use any more."""
        self._is_dismissed = True
        if not self.is_over:
            process_control.kill_each([self._pid])  # it is not reaped before the thread ends
        self._thread.join()

    def _follow(self, reads: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        data = b""
        while piece := os.read(reads, 1 << 16):
            data += piece
        os.close(reads)
        if not self._is_dismissed:
            self._on_report(_heard(data))
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _save(rank: int, writes: int, work: Callable[[], SaverReport]) -> None:
    """Body of the fork; does not return."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        process_control.die_with_parent(rank, signal.SIGKILL)
        process_control.name_this(_NAME)
        process_control.yield_to_others()
        gc.disable()  # nobody's finalizers run here
        for adapter in loaded_adapters():
            adapter.set_thread_count(1)  # its threads are not in the fork
        made, stay = tried(work)
        report = encode(made or SaverReport(stay=stay))
        while report:
            report = report[os.write(writes, report) :]
    finally:
        os._exit(0)


def _heard(data: bytes) -> SaverReport:
    """The report; of a saver that was killed, or crashed, there is none, or half of one."""
    try:
        return decode(data, SaverReport)
    except msgspec.MsgspecError:
        return SaverReport(stay=Stay("the process that saves it was killed, or has crashed", for_now=True))
