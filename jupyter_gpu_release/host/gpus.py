"""NVML: GPUs, their memory, use and processes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pynvml

from ..protocol.node import GpuInfo

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
    #: the GPU's, with the instance's type: ``H100 MIG 1g.10gb``
    name: str = ""


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
K = TypeVar("K")
#: these end the whole library, not one GPU: start over with the next question
_OVER = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
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


@dataclass(frozen=True)
class _Device:
    """A GPU or a MIG instance of one, and the GPU itself with its number: its illness is that of all its instances."""

    handle: Any
    gpu: Any
    index: int


class Nvml:
    """NVML, initialised on first use; every answer is empty where there is no driver (never an exception).

    ``names``: the GPUs that :meth:`gpus` tells of, in this order, each as an entry of ``CUDA_VISIBLE_DEVICES``: a
    number, a UUID or its beginning, a MIG instance. None: all, by number.

    Not safe for use by two threads at once. A call may take long (a GPU in trouble), so not on an event loop.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._names = names
        self._ready = False
        self._seen_us: dict[int, int] = {}
        self._fixed: dict[int, _Fixed] = {}
        self._last: dict[str, GpuInfo] = {}
        #: UUID or its beginning → place of the GPU, where it was last
        self._places: dict[str, int] = {}
        self._is_installed = True
        self._trouble = GpuTrouble()
        self.problem = ""

    def _start(self) -> bool:
        if self._ready:
            return True
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.problem = str(error)
            self._is_installed = error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
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
            gpus = _each(range(pynvml.nvmlDeviceGetCount()), self._gpu, self._gpu_in_trouble)
        except pynvml.NVMLError as error:
            self._lost(error)
            return GpuReading(problem=self.problem)
        return GpuReading(tuple(gpus))

    def _gpu_in_trouble(self, index: int, error: Any) -> Gpu:
        self._fixed.pop(index, None)
        return Gpu(index, problem=str(error), lost=_code(error) == pynvml.NVML_ERROR_GPU_IS_LOST)

    def _fixed_of(self, index: int) -> _Fixed:
        """Facts, asked for rarely: another GPU takes this index only when the driver starts anew."""
        now_s = time.monotonic()
        known = self._fixed.get(index)
        if known is None or now_s - known.asked_s > _ASKED_ANEW_S:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            mode = _told(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
            known = self._fixed[index] = _Fixed(
                handle,
                _text(pynvml.nvmlDeviceGetUUID, handle),
                _text(pynvml.nvmlDeviceGetName, handle),
                mode == pynvml.NVML_DEVICE_MIG_ENABLE,
                now_s,
            )
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
            slices=tuple(_slices(handle, index)) if fixed.divided else (),
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
    def unread(self) -> list[GpuInfo]:
        """Those that were named, before anything is known of them; never blocks."""
        return [GpuInfo(name, is_unread=True) for name in self._names or ()]

    def gpus(self) -> list[GpuInfo]:
        """Those that were named (else all), with memory and utilisation now, and what is wrong with each.

        Without a driver that is the same with all that were named; where none was ever installed, nothing is known.
        """
        if not self._start():
            return self._all_in_trouble()
        try:
            names = range(pynvml.nvmlDeviceGetCount()) if self._names is None else self._names
            return _each([str(name) for name in names], self._info, self._info_in_trouble)
        except pynvml.NVMLError as error:
            self._lost(error)
            return self._all_in_trouble()

    def _all_in_trouble(self) -> list[GpuInfo]:
        trouble = f"the driver says: {self.problem}" if self._is_installed else ""
        return [self._without_figures(name, trouble) for name in self._names or ()]

    def _info_in_trouble(self, name: str, error: Any) -> GpuInfo:
        return self._without_figures(name, f"the driver says: {error}")

    def _without_figures(self, name: str, trouble: str) -> GpuInfo:
        """One that is lost keeps its name and size."""
        known = self._last.get(name, GpuInfo(name))
        return msgspec.structs.replace(known, used_bytes=0, utilization=None, trouble=trouble)

    def _info(self, name: str) -> GpuInfo:
        device = self._device(name)
        if device is None:
            return self._without_figures(name, "the driver does not know it")
        handle = device.handle
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        info = self._last[name] = GpuInfo(
            index=name,
            name=_name_of(device),
            slice_of="" if handle is device.gpu else str(device.index),
            uuid=_text(pynvml.nvmlDeviceGetUUID, handle),
            memory_bytes=int(memory.total),
            used_bytes=int(memory.used),
            utilization=_told(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            trouble=self._trouble.of(device.index, device.gpu),
        )
        return info

    def _device(self, name: str) -> _Device | None:
        """The GPU of this name; None: there is none, or there are several. Raises what the driver says of it."""
        wanted = name.strip()
        if wanted.isdecimal():
            index = int(wanted)
            return _whole(index) if index < pynvml.nvmlDeviceGetCount() else None
        known = self._places.get(name)
        found = None if known is None else _only_named(wanted, _devices(known))
        if found is None:
            found = _only_named(wanted, _all_devices())
        if found is None and known is not None:
            pynvml.nvmlDeviceGetUUID(_whole(known).gpu)  # it may be lost, and says so
        if found is not None:
            self._places[name] = found.index
        return found

    def driver_version(self) -> str:
        """Version of the NVIDIA driver, empty without one."""
        if self._start():
            return _told(lambda: _text(pynvml.nvmlSystemGetDriverVersion)) or ""
        return ""

    def driver_cuda(self) -> str:
        """The highest CUDA version that the driver supports, such as ``12.8``; empty without one."""
        number = _told(pynvml.nvmlSystemGetCudaDriverVersion_v2) if self._start() else None
        return f"{number // 1000}.{number % 1000 // 10}" if number else ""

    def memory_by_pid(self, name: str) -> dict[int, int]:
        """Compute processes on a GPU → device memory in bytes (0 where the driver does not tell)."""
        if not self._start():
            return {}
        try:
            device = self._device(name)
            processes = [] if device is None else pynvml.nvmlDeviceGetComputeRunningProcesses(device.handle)
        except pynvml.NVMLError as error:
            if error.value in _OVER:
                self._lost(error)
            return {}
        return {int(found.pid): int(found.usedGpuMemory or 0) for found in processes}


def _each(of: Sequence[K], ask: Callable[[K], T], in_trouble: Callable[[K, Any], T]) -> list[T]:
    """Ask of each GPU. What goes wrong with one is that one's alone, unless all answer what nobody knows."""
    answers, unknown = [], []
    for each in of:
        try:
            answers.append(ask(each))
        except Exception as error:  # pynvml fails in other ways, too, where an answer is odd
            if _code(error) in _OVER:
                raise
            if _code(error) == pynvml.NVML_ERROR_UNKNOWN:
                unknown.append(error)
            answers.append(in_trouble(each, error))
    if unknown and len(unknown) == len(of):
        raise unknown[0]
    return answers


def _code(error: Exception) -> int | None:
    """The driver's number of an error; None: it is not the driver's."""
    return error.value if isinstance(error, pynvml.NVMLError) else None


def _whole(index: int) -> _Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return _Device(handle, handle, index)


def _name_of(device: _Device) -> str:
    """The name of a GPU, or of a MIG instance: with its type, which not all drivers tell with it."""
    name = _text(pynvml.nvmlDeviceGetName, device.handle)
    profile = "" if device.handle is device.gpu else _told(lambda: _profile(device)) or ""
    return name if profile in name else f"{name.removesuffix(' MIG')} MIG {profile}"


def _profile(device: _Device) -> str:
    """The type of a MIG instance as NVIDIA names it, such as ``1g.10gb``: memory is given in eighths of the GPU's."""
    part = pynvml.nvmlDeviceGetAttributes_v2(device.handle)
    total = int(pynvml.nvmlDeviceGetMemoryInfo(device.gpu).total)
    eighths = math.ceil(8 * (int(part.memorySizeMB) << 20) / total)
    slices, own = int(part.gpuInstanceSliceCount), int(part.computeInstanceSliceCount)
    return f"{f'{own}c.' if own < slices else ''}{slices}g.{round(eighths / 8 * math.ceil(total / (1 << 30)))}gb"


def _devices(index: int) -> Iterator[_Device]:
    """A GPU and its MIG instances; none while it is in trouble."""
    with contextlib.suppress(pynvml.NVMLError):
        whole = _whole(index)
        yield whole
        for _, part in _instances(whole.gpu):
            yield _Device(part, whole.gpu, index)


def _all_devices() -> Iterator[_Device]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        yield from _devices(index)


def _only_named(name: str, devices: Iterator[_Device]) -> _Device | None:
    found = []
    for device in devices:
        with contextlib.suppress(pynvml.NVMLError):  # the trouble of another one
            if _text(pynvml.nvmlDeviceGetUUID, device.handle).lower().startswith(name.lower()):
                found.append(device)
    return found[0] if len(found) == 1 else None


def _instances(handle: Any) -> Iterator[tuple[int, Any]]:
    """MIG instances of a GPU and their numbers; places without one answer "not found"."""
    for index in range(_told(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))) or 0):
        with contextlib.suppress(pynvml.NVMLError):
            yield index, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)


def _slices(handle: Any, gpu: int) -> Iterator[MigSlice]:
    for index, part in _instances(handle):
        with contextlib.suppress(pynvml.NVMLError):
            memory = pynvml.nvmlDeviceGetMemoryInfo(part)
            instance = _told(lambda part=part: int(pynvml.nvmlDeviceGetGpuInstanceId(part)))  # type: ignore[misc]
            yield MigSlice(
                index,
                instance,
                _text(pynvml.nvmlDeviceGetUUID, part),
                int(memory.total),
                int(memory.used),
                _name_of(_Device(part, handle, gpu)),
            )


def _told(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value in _OVER or error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return None


def _instance(number: Any) -> int | None:
    return None if number is None or int(number) == 0xFFFFFFFF else int(number)


def _text(question: Callable[..., str | bytes], *of: Any) -> str:
    """NVML's answer, whatever bytes are in it."""
    try:
        value = question(*of)
    except UnicodeDecodeError as error:  # pynvml decodes it itself
        value = error.object
    return value.decode(errors="replace") if isinstance(value, bytes) else value
