"""NVML: GPUs, their memory, use and processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pynvml

from ..protocol.node import GpuInfo
from .gpu_trouble import GpuTrouble


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that holds memory on a GPU, under the id that the driver knows it by (maybe the host's)."""

    pid: int
    used_bytes: int | None
    #: share from 0 to 1 of the time in which it kept the GPU busy
    utilization: float | None = None
    #: MIG instance, where the GPU is divided
    instance: int | None = None


class MigSlice(msgspec.Struct, frozen=True):
    """A MIG instance."""

    index: int
    instance: int | None
    uuid: str
    memory_bytes: int
    used_bytes: int


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. ``problem``: why its figures are missing (lost, reset needed); then it has no processes."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_bytes: int = 0
    used_bytes: int = 0
    utilization: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    slices: tuple[MigSlice, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    problem: str = ""
    #: it fell off the bus: nothing can run on it until the machine restarts
    lost: bool = False


class GpuReading(msgspec.Struct, frozen=True):
    """All GPUs. ``problem``: why there are none (no driver, driver reloaded); empty where all is well."""

    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


T = TypeVar("T")
#: these end the whole library, not one GPU: start over with the next question
_OVER = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_UNKNOWN})
#: how long a GPU's name and mode are taken for known
_ASKED_ANEW_S = 30.0


@dataclass(frozen=True)
class _Fixed:
    """Facts that do not change while a GPU is there, except MIG, which an administrator switches on an unused GPU."""

    handle: Any
    uuid: str
    name: str
    divided: bool
    asked_s: float


class Nvml:
    """NVML, initialised on first use; every answer is empty where there is no driver (never an exception).

    Not safe for use by two threads at once. A call may take long (a GPU in trouble), so not on an event loop.
    """

    def __init__(self) -> None:
        self._ready = False
        self._seen_us: dict[int, int] = {}
        self._fixed: dict[int, _Fixed] = {}
        self._last: dict[int, GpuInfo] = {}
        self._trouble = GpuTrouble()
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
        self.problem = ""
        return True

    def _lost(self, error: Any) -> None:
        """Driver reloaded or GPU lost: start over with the next question."""
        self.problem = str(error)
        self._ready = False
        self._fixed.clear()
        self._trouble.forget()
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def close(self) -> None:
        """Let the library go."""
        if self._ready:
            self._lost(self.problem)

    # ------------------------------------------------------------------------------------ everything, GPU by GPU
    def read(self) -> GpuReading:
        """All GPUs with their processes. A GPU in trouble does not hide the others."""
        if not self._start():
            return GpuReading(problem=self.problem)
        try:
            gpus = tuple(self._gpu_or_problem(index) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError as error:
            self._lost(error)
            return GpuReading(problem=self.problem)
        return GpuReading(gpus)

    def _gpu_or_problem(self, index: int) -> Gpu:
        try:
            return self._gpu(index)
        except pynvml.NVMLError as error:
            if error.value in _OVER:
                raise
            self._fixed.pop(index, None)
            return Gpu(index, problem=str(error), lost=error.value == pynvml.NVML_ERROR_GPU_IS_LOST)

    def _fixed_of(self, index: int) -> _Fixed:
        """Facts, asked for rarely: another GPU takes this index only when the driver starts anew."""
        now_s = time.monotonic()
        known = self._fixed.get(index)
        if known is None or now_s - known.asked_s > _ASKED_ANEW_S:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            mode = _told(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
            known = self._fixed[index] = _Fixed(
                handle, _text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetName(handle)),
                mode == pynvml.NVML_DEVICE_MIG_ENABLE, now_s,
            )  # fmt: skip
        return known

    def _gpu(self, index: int) -> Gpu:
        fixed = self._fixed_of(index)
        handle = fixed.handle
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        milliwatts = _told(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
        celsius = _told(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
        return Gpu(
            index=index,
            uuid=fixed.uuid,
            name=fixed.name,
            memory_bytes=int(memory.total),
            used_bytes=int(memory.used),
            utilization=_told(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            temperature_c=None if celsius is None else float(celsius),
            power_w=None if milliwatts is None else milliwatts / 1000,
            slices=tuple(_slices(handle)) if fixed.divided else (),
            processes=self._processes(index, handle),
        )

    def _processes(self, index: int, handle: Any) -> tuple[GpuProcess, ...]:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if not found:
            return ()
        shares = self._shares(index, handle)
        return tuple(
            GpuProcess(
                pid=int(process.pid),
                used_bytes=None if process.usedGpuMemory is None else int(process.usedGpuMemory),
                utilization=None if shares is None else shares.get(int(process.pid), 0.0),
                instance=_instance(getattr(process, "gpuInstanceId", None)),
            )
            for process in found
        )

    def _shares(self, index: int, handle: Any) -> dict[int, float] | None:
        """Process → share since the last look; None where the driver does not tell (MIG, old GPUs)."""
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, self._seen_us.get(index, 0))
        except pynvml.NVMLError as error:
            return {} if error.value == pynvml.NVML_ERROR_NOT_FOUND else None
        shares: dict[int, float] = {}
        for sample in samples:
            shares[int(sample.pid)] = max(shares.get(int(sample.pid), 0.0), min(int(sample.smUtil), 100) / 100)
            self._seen_us[index] = max(self._seen_us.get(index, 0), int(sample.timeStamp))
        return shares

    # ------------------------------------------------------------------------------------------- for node agents
    def gpus(self) -> list[GpuInfo]:
        """All GPUs with memory and utilisation now, and what is wrong with each; none without a driver."""
        if not self._start():
            return []
        try:
            return [self._info_or_trouble(index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            self._lost(error)
            return []

    def _info_or_trouble(self, index: int) -> GpuInfo:
        """One that is lost keeps its name and size, without figures."""
        try:
            info = self._last[index] = self._info(index)
        except pynvml.NVMLError as error:
            if error.value in _OVER:
                raise
            known = self._last.get(index, GpuInfo(str(index)))
            return msgspec.structs.replace(known, used_bytes=0, utilization=None, trouble=f"the driver says: {error}")
        return info

    def _info(self, index: int) -> GpuInfo:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return GpuInfo(
            index=str(index),
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            memory_bytes=int(memory.total),
            used_bytes=int(memory.used),
            utilization=_told(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            trouble=self._trouble.of(index, handle),
        )

    def driver_version(self) -> str:
        """Version of the NVIDIA driver, empty without one."""
        if self._start():
            return _told(lambda: _text(pynvml.nvmlSystemGetDriverVersion())) or ""
        return ""

    def memory_by_pid(self, index: str) -> dict[int, int]:
        """Compute processes on a GPU → device memory in bytes (0 where the driver does not tell)."""
        if not self._start():
            return {}
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(index))
            processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except (pynvml.NVMLError, ValueError) as error:
            self._lost(error)
            return {}
        return {int(found.pid): int(found.usedGpuMemory or 0) for found in processes}


def _slices(handle: Any) -> Iterator[MigSlice]:
    for index in range(_told(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0):
        # places without an instance answer "not found"
        with contextlib.suppress(pynvml.NVMLError):
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(part)
            instance = _told(lambda part=part: int(pynvml.nvmlDeviceGetGpuInstanceId(part)))  # type: ignore[misc]
            yield MigSlice(index, instance, _text(pynvml.nvmlDeviceGetUUID(part)), int(memory.total), int(memory.used))


def _told(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value in _OVER or error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return None


def _instance(number: Any) -> int | None:
    return None if number is None or int(number) == 0xFFFFFFFF else int(number)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
