"""One thread that asks NVML: a driver in trouble, which may take a call for ever, holds up nobody else."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future

from ..core.node_messages import GpuInfo
from .nvml import Nvml


class CardReader:
    """Gives readings of all cards; the latest is in ``last``. The thread begins with the first question."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._asked: queue.SimpleQueue[Future[list[GpuInfo]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.last: list[GpuInfo] = []
        #: version of the driver, as far as it has been told
        self.driver = ""
        self._asked_s: float | None = None

    def ask(self) -> Future[list[GpuInfo]]:
        """Ask for a reading that is made from now on; never blocks."""
        future: Future[list[GpuInfo]] = Future()
        with self._lock:
            self._asked.put(future)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="jgr-nvml", daemon=True)
                self._thread.start()
        return future

    @property
    def silent_s(self) -> float:
        """For how long the driver has owed an answer."""
        asked_s = self._asked_s
        return 0.0 if asked_s is None else time.monotonic() - asked_s

    def _serve(self) -> None:
        while True:
            waiting = [self._asked.get()]
            while not self._asked.empty():
                waiting.append(self._asked.get())
            self._asked_s = time.monotonic()
            self.driver = self.driver or self._nvml.driver_version()
            self.last = self._nvml.gpus()
            self._asked_s = None
            for future in waiting:
                if future.set_running_or_notify_cancel():  # else nobody waits for it any more
                    future.set_result(self.last)
