"""The node's GPUs through NVML (the real ``pynvml`` from nvidia-ml-py), or the simulated ones."""

from __future__ import annotations

import contextlib
from typing import Any

import pynvml

from ..core.node_messages import GpuInfo


class Nvml:
    """NVML, initialised on first use; every answer is empty where there is no driver (never an exception)."""

    def __init__(self) -> None:
        self._ready = False
        self.problem = ""

    def _start(self) -> bool:
        if self._ready:
            return True
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.problem = str(error)
            return False
        self._ready = True
        return True

    def _lost(self, error: Any) -> None:
        """Driver reloaded or GPU lost: start over with the next question."""
        self.problem = str(error)
        self._ready = False
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def gpus(self) -> list[GpuInfo]:
        """All cards with memory and utilisation now."""
        if not self._start():
            return []
        try:
            return [self._gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            self._lost(error)
            return []

    def _gpu(self, index: int) -> GpuInfo:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        utilization: float | None = None
        with contextlib.suppress(pynvml.NVMLError):
            utilization = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        return GpuInfo(
            index=str(index),
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            memory_bytes=int(memory.total),
            used_bytes=int(memory.used),
            utilization=utilization,
        )

    def driver_version(self) -> str:
        """Version of the NVIDIA driver, empty without one."""
        if self._start():
            with contextlib.suppress(pynvml.NVMLError):
                return _text(pynvml.nvmlSystemGetDriverVersion())
        return ""

    def memory_by_pid(self, index: str) -> dict[int, int]:
        """Compute processes on a card → device memory in bytes (0 where the driver does not tell)."""
        if not self._start():
            return {}
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(index))
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except (pynvml.NVMLError, ValueError) as error:
            self._lost(error)
            return {}
        return {int(found.pid): int(found.usedGpuMemory or 0) for found in processes}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def simulated_gpus(count: int) -> list[GpuInfo]:
    """``count`` cards that exist in Ray's bookkeeping only."""
    return [GpuInfo(index=str(index), name="simulated GPU", simulated=True) for index in range(count)]
