"""How a run used its GPUs, sampled off the event loop while it runs; feeds the receipt's verdict."""

from __future__ import annotations

import asyncio
import threading
import time

from ..core.messages import GpuUse
from ..core.node_messages import GpuInfo, StartOrder
from ..hardware.card_reader import CardReader

SAMPLE_S = 0.5
#: a driver that has not answered after this is not waited for: GPUs are held meanwhile
_ANSWER_S = 1.0


class _Samples:
    """Running sums for one run."""

    def __init__(self, order: StartOrder) -> None:
        self.order = order
        self.count = 0
        self.sum = 0.0
        self.peak: float | None = None
        self.peak_memory = 0
        self.before: dict[str, int] | None = None

    def begin(self, gpus: list[GpuInfo]) -> None:
        """Take the reading that others are compared with."""
        self.before = {gpu.index: gpu.used_bytes for gpu in gpus}

    def add(self, gpus: list[GpuInfo]) -> None:
        """Take one reading of all cards."""
        if self.before is None:
            return
        mine = [gpu for gpu in gpus if gpu.index in (self.order.gpu_ids or ())]
        known = [gpu.utilization for gpu in mine if gpu.utilization is not None]
        if known:
            level = sum(known) / len(known)
            self.sum += level
            self.count += 1
            self.peak = max(self.peak or 0.0, *known)
        used = max((gpu.used_bytes - self.before.get(gpu.index, 0) for gpu in mine), default=0)
        self.peak_memory = max(self.peak_memory, used)


class UseMeter:
    """Samples the GPUs of the runs in progress; idle (no thread, no NVML call) when there is none.

    Nothing here waits for the driver, but for :meth:`end`, which has a limit.
    """

    def __init__(self, cards: CardReader) -> None:
        self._cards = cards
        self._runs: dict[str, _Samples] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, order: StartOrder) -> None:
        """Start to sample for ``order`` (nothing to do for simulated GPUs and CPU stages)."""
        if order.simulated or not order.gpu_ids:
            return
        with self._lock:
            samples = self._runs[order.run] = _Samples(order)
            self._cards.ask().add_done_callback(lambda read: samples.begin(read.result()))
            if self._thread is None:
                self._thread = threading.Thread(target=self._sample_forever, name="jgr-gpu-use", daemon=True)
                self._thread.start()

    def seen(self, run: str) -> int:
        """How many samples of ``run`` have been taken."""
        with self._lock:
            samples = self._runs.get(run)
            return samples.count if samples else 0

    async def end(self, order: StartOrder, *, stays: bool = False) -> GpuUse | None:
        """Stop sampling and return the use; ``left_bytes``: what the device holds beyond what it held before.

        ``stays``: the process has not ended, so nothing can be said of what it leaves.
        """
        with self._lock:
            samples = self._runs.pop(order.run, None)
        if samples is None:
            return None
        try:
            read = await asyncio.wait_for(asyncio.wrap_future(self._cards.ask()), _ANSWER_S)
        except TimeoutError:
            read = []
        before = samples.before or {}
        now = [gpu for gpu in read if gpu.index in (order.gpu_ids or ()) and samples.before is not None]
        left = sum(max(0, gpu.used_bytes - before.get(gpu.index, 0)) for gpu in now)
        return GpuUse(
            peak_utilization=samples.peak,
            mean_utilization=samples.sum / samples.count if samples.count else None,
            peak_memory_bytes=samples.peak_memory,
            total_memory_bytes=min((gpu.memory_bytes for gpu in now), default=None),
            left_bytes=left if now and not stays else None,
        )

    def _sample_forever(self) -> None:
        while True:
            time.sleep(SAMPLE_S)
            with self._lock:
                if not self._runs:
                    self._thread = None
                    return
            gpus = self._cards.ask().result()
            with self._lock:
                for samples in self._runs.values():
                    samples.add(gpus)
