"""Samples of how a run uses its GPUs, taken off the event loop while it runs, and whether it has left them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import msgspec

from ...host import process_control
from ...host.gpu_reader import GpuReader
from ...host.use_series import UseSeries
from ...protocol.node import AttemptId, GpuInfo, StartOrder
from ...protocol.runs import GpuUse
from .part_use import NOISE_BYTES, PartUse

log = logging.getLogger(__name__)

SAMPLE_S = 0.5
#: a driver that has not answered after this is not waited for: GPUs are held meanwhile
_ANSWER_S = 1.0
#: the driver gets so long to clear a device of processes that have ended
CLEAR_S = 5.0
_LOOK_S = 0.02
_Answer = TypeVar("_Answer")


class _Samples:
    """Running sums for one run."""

    def __init__(self, order: StartOrder, part: PartUse | None, on_over: Callable[[str], object]) -> None:
        self.order = order
        #: of a part of a GPU: what the run's own processes use
        self.part = part
        self.on_over = on_over
        self.count = 0
        self.sum = 0.0
        self.peak: float | None = None
        self.peak_memory = 0
        self.series = UseSeries(time.time(), SAMPLE_S)
        self.before: dict[str, int] | None = None
        #: the first reading after the run's processes had ended, or the one in which they had left
        self.after: list[GpuInfo] | None = None

    def begin(self, gpus: list[GpuInfo]) -> None:
        """Take the reading that others are compared with."""
        self.before = {gpu.index: gpu.used_bytes for gpu in gpus}

    def add(self, gpus: list[GpuInfo]) -> None:
        """Take one reading of all GPUs."""
        if self.before is None or self.after is not None:
            return
        mine = self._mine(gpus)
        known = [gpu.utilization for gpu in mine if gpu.utilization is not None]
        if known:
            level = sum(known) / len(known)
            self.sum += level
            self.count += 1
            self.peak = max(self.peak or 0.0, *known)
        self.series.add_gpus(time.time(), mine if self.part is None else [self._of_part(gpu) for gpu in mine])
        used = max((gpu.used_bytes - self.before.get(gpu.index, 0) for gpu in mine), default=0)
        self.peak_memory = max(self.peak_memory, used)

    def bytes_left(self, gpus: list[GpuInfo]) -> int | None:
        """Bytes that its devices hold beyond what they held before; None: not known."""
        before, mine = self.before, self._mine(gpus)
        if before is None or not mine:
            return None
        return sum(max(0, gpu.used_bytes - before.get(gpu.index, 0)) for gpu in mine)

    def _of_part(self, gpu: GpuInfo) -> GpuInfo:
        size = self.order.part_bytes or gpu.memory_bytes
        used = min(self.part.used_bytes, size) if self.part is not None else gpu.used_bytes
        return msgspec.structs.replace(gpu, used_bytes=used, memory_bytes=size)

    def _mine(self, gpus: list[GpuInfo]) -> list[GpuInfo]:
        return [gpu for gpu in gpus if gpu.index in (self.order.gpu_ids or ())]


class UseMeter:
    """Samples the GPUs of the runs in progress; idle (no thread, no NVML call) when there is none.

    Nothing here waits for the driver, but for :meth:`wait_until_clear` and :meth:`end_sampling`, which have limits.
    """

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader
        self._runs: dict[AttemptId, _Samples] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin_sampling(
        self, order: StartOrder, part: PartUse | None = None, on_over: Callable[[str], object] = lambda _: None
    ) -> None:
        """Start to sample for ``order`` (nothing to do for simulated GPUs and CPU stages). ``on_over``: called in a
        thread with the word of :meth:`.PartUse.look` when a run uses more than its part.
        """
        if order.simulated or not order.gpu_ids:
            return
        with self._lock:
            samples = self._runs[order.attempt_id] = _Samples(order, part, on_over)
            self._reader.ask().add_done_callback(lambda read: samples.begin(read.result()))
            if self._thread is None:
                self._thread = threading.Thread(target=self._sample_forever, name="jgr-gpu-use", daemon=True)
                self._thread.start()

    def samples_taken(self, attempt_id: AttemptId) -> int:
        """Number of samples of an attempt that have been taken."""
        with self._lock:
            samples = self._runs.get(attempt_id)
            return samples.count if samples else 0

    async def wait_until_clear(self, order: StartOrder, limit_s: float | None = None) -> None:
        """The processes of a run have ended: return when the driver shows that they have left its devices.

        It may show them for a while, and the next run would find their memory taken. A driver that does not answer, or
        still shows them after ``limit_s`` (``CLEAR_S``), is not waited for; ``left_bytes`` tells what is left.
        """
        with self._lock:
            samples = self._runs.get(order.attempt_id)
        deadline = time.monotonic() + (CLEAR_S if limit_s is None else limit_s)
        while samples is not None:
            samples.after = await self._answered(self._reader.ask(), [])
            left = await self._left(samples, samples.after)
            if left is None or left <= NOISE_BYTES or time.monotonic() > deadline or await self._is_of_others(order):
                return
            await asyncio.sleep(_LOOK_S)

    async def _left(self, samples: _Samples, gpus: list[GpuInfo]) -> int | None:
        """Bytes that the run still holds: of a shared GPU those of its own processes."""
        if samples.part is None:
            return samples.bytes_left(gpus)
        asked = self._reader.ask_memory((samples.order.gpu_ids or [""])[0])
        by_pid: dict[int, int] = await self._answered(asked, {})
        return samples.part.left_bytes(by_pid)

    async def _is_of_others(self, order: StartOrder) -> bool:
        """Tell if all that use its devices live: the processes of the run do not."""
        users = await self._answered(self._reader.ask_users(order.gpu_ids or ()), set[int]())
        return bool(users) and not any(process_control.is_gone(pid) for pid in users)

    async def _answered(self, asked: Future[_Answer], otherwise: _Answer) -> _Answer:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(asked), _ANSWER_S)
        except Exception:  # noqa: BLE001 - late, or whatever is wrong with the driver: a run's end waits for neither
            return otherwise

    async def end_sampling(self, order: StartOrder) -> GpuUse | None:
        """Stop sampling and return the use; ``left_bytes``: what the device holds beyond what it held before."""
        with self._lock:
            samples = self._runs.pop(order.attempt_id, None)
        if samples is None:
            return None
        read = samples.after if samples.after is not None else await self._answered(self._reader.ask(), [])
        now = [gpu for gpu in read if gpu.index in (order.gpu_ids or ()) and samples.before is not None]
        part, total = samples.part, min((gpu.memory_bytes for gpu in now), default=None)
        return GpuUse(
            peak_utilization=samples.peak,
            mean_utilization=samples.sum / samples.count if samples.count else None,
            peak_memory_bytes=samples.peak_memory if part is None else part.peak_bytes,
            total_memory_bytes=total if part is None else order.part_bytes or total,
            left_bytes=await self._left(samples, read),
            utilization=samples.series.utilization,
            memory=samples.series.memory,
            span_s=samples.series.span_s,
            since=samples.series.since_s,
        )

    def _sample_forever(self) -> None:
        while True:
            time.sleep(SAMPLE_S)
            with self._lock:
                if not self._runs:
                    self._thread = None
                    return
            gpus = self._reader.ask().result()
            with self._lock:
                runs = list(self._runs.values())
            for samples in runs:
                try:
                    self._look_at_part(samples, gpus)
                except Exception:  # the entry point of a thread that all runs share
                    log.exception("run %s: the memory of its part of a GPU is not known", samples.order.run)
            with self._lock:
                for samples in runs:
                    samples.add(gpus)

    def _look_at_part(self, samples: _Samples, gpus: list[GpuInfo]) -> None:
        if samples.part is None:
            return
        by_pid = self._reader.ask_memory((samples.order.gpu_ids or [""])[0]).result()
        if word := samples.part.look(by_pid, time.monotonic(), samples.bytes_left(gpus) or 0):
            samples.on_over(word)
