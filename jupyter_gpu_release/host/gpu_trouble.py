"""Troubles of a GPU, by NVML: errors of its memory, faults that its driver reports (Xid), throttling."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pynvml

#: readings are this old at most: runs are sampled more often than a GPU falls ill
_LOOK_S = 5.0
#: what an Xid tells is over after so long without another one, unless the GPU itself says otherwise
_XID_LASTS_S = 600.0
#: faults of a program, not of the GPU: an exception of its kernels, an address that it does not have, its own end
_XIDS_OF_PROGRAMS = frozenset({13, 31, 32, 43, 45, 68, 69})
_HARDWARE_SLOWS = {
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "it is too hot, and slowed down by its hardware",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "its power supply has it slowed down",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "it is slowed down by its hardware",
}


class GpuTrouble:
    """Remembers what was found of each GPU, by index; asked by the one thread that asks NVML."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[float, str]] = {}
        #: index → number of the last Xid, and when it came
        self._xids: dict[int, tuple[int, float]] = {}
        self._events: Any = None
        self._watched: set[int] = set()

    def of(self, index: int, handle: Any) -> str:
        """Say why this GPU should get no runs; empty when it is well, or does not tell."""
        now_s = time.monotonic()
        seen_s, words = self._found.get(index, (-_LOOK_S, ""))
        if now_s - seen_s >= _LOOK_S:
            self._watch(index, handle)
            self._read_events(now_s)
            words = _memory(handle) or self._last_xid(index, now_s) or _slowed(handle)
            self._found[index] = now_s, words
        return words

    def forget(self) -> None:
        """The driver is another one: its events are not ours any more."""
        self._events = None
        self._watched.clear()
        self._found.clear()

    def _watch(self, index: int, handle: Any) -> None:
        if index in self._watched:
            return
        self._watched.add(index)
        with contextlib.suppress(pynvml.NVMLError):  # not on every GPU
            if self._events is None:
                self._events = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)

    def _read_events(self, now_s: float) -> None:
        """Take those that came since the last look; never waits."""
        if self._events is None:
            return
        with contextlib.suppress(pynvml.NVMLError):  # no more of them
            while True:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                if int(event.eventData) not in _XIDS_OF_PROGRAMS:
                    self._xids[pynvml.nvmlDeviceGetIndex(event.device)] = int(event.eventData), now_s

    def _last_xid(self, index: int, now_s: float) -> str:
        number, came_s = self._xids.get(index, (0, 0.0))
        return f"its driver reported Xid {number}" if number and now_s - came_s < _XID_LASTS_S else ""


def _memory(handle: Any) -> str:
    errors = _told(
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    )
    if errors:
        return (
            f"its memory had {errors} error{'' if errors == 1 else 's'} that ECC could not correct; a reset clears that"
        )
    _, _, pending, failed = _told(lambda: pynvml.nvmlDeviceGetRemappedRows(handle)) or (0, 0, 0, 0)
    if failed:
        return "rows of its memory could not be remapped: it is to be replaced"
    return "rows of its memory wait for a reset to be remapped" if pending else ""


def _slowed(handle: Any) -> str:
    reasons = _told(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    return next((words for bit, words in _HARDWARE_SLOWS.items() if reasons & bit), "")


def _told(question: Callable[[], Any]) -> Any:
    """The answer; None where the GPU has no such thing. One that is lost raises."""
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return None
