"""One thread that asks NVML: a driver in trouble, which may take a call for ever, holds up nobody else."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import msgspec

from ..protocol.node import GpuInfo
from .gpus import Nvml

#: a driver that has owed an answer for so long is dead
SILENT_S = 60.0


class GpuReader:
    """Gives readings of all GPUs; the latest is in ``last``. The thread begins with the first question."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        #: who waits, and for what: None is a reading of all GPUs
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any] | None, Future[Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.last: list[GpuInfo] = nvml.unread()
        #: version of the driver, as far as it has been told
        self.driver = ""
        #: the highest CUDA version that it supports
        self.driver_cuda = ""
        #: why the last reading has no figures at all
        self.problem = ""
        self._asked_s: float | None = None

    def ask(self) -> Future[list[GpuInfo]]:
        """Ask for a reading that is made from now on; never blocks."""
        return self._put(None)

    def ask_users(self, gpus: Collection[str]) -> Future[set[int]]:
        """Ask which processes use one of these GPUs; never blocks. In a container they may have other numbers."""
        return self._put(lambda: {pid for gpu in gpus for pid in self._nvml.memory_by_pid(gpu)})

    def ask_memory(self, gpu: str) -> Future[dict[int, int]]:
        """Ask how much of a GPU's memory each process uses; never blocks. Numbers are as in :meth:`ask_users`."""
        return self._put(lambda: self._nvml.memory_by_pid(gpu))

    def _put(self, question: Callable[[], Any] | None) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._asked.put((question, future))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="jgr-nvml", daemon=True)
                self._thread.start()
        return future

    def current(self) -> list[GpuInfo]:
        """The latest reading, or what a driver's long silence says of all GPUs."""
        if self.silent_s < SILENT_S:
            return self.last
        return [msgspec.structs.replace(gpu, trouble="its driver does not answer") for gpu in self.last]

    @property
    def silent_s(self) -> float:
        """Time for which the driver has owed an answer."""
        asked_s = self._asked_s
        return 0.0 if asked_s is None else time.monotonic() - asked_s

    def _serve(self) -> None:
        while True:
            waiting = [self._asked.get()]
            while not self._asked.empty():
                waiting.append(self._asked.get())
            self._asked_s = time.monotonic()
            if any(question is None for question, _ in waiting):
                self._read()
            answers = [_answer(question or (lambda: self.last)) for question, _ in waiting]
            self._asked_s = None
            for (_, future), (answer, error) in zip(waiting, answers, strict=True):
                if not future.set_running_or_notify_cancel():  # nobody waits for it any more
                    continue
                if error is None:
                    future.set_result(answer)
                else:
                    future.set_exception(error)

    def _read(self) -> None:
        """A failure of whatever kind is this reading's: it says so of all GPUs, and the next one may do better."""
        try:
            self.driver = self.driver or self._nvml.driver_version()
            self.driver_cuda = self.driver_cuda or self._nvml.driver_cuda()
            self.last, self.problem = self._nvml.gpus(), self._nvml.problem
        except Exception as error:  # noqa: BLE001 - the entry point of a thread that everybody asks
            self.problem = f"{type(error).__name__}: {error}"
            self.last = [
                msgspec.structs.replace(gpu, trouble=f"it cannot be read: {self.problem}") for gpu in self.last
            ]


def _answer(question: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """The answer, or why there is none: that is this question's alone."""
    try:
        return question(), None
    except Exception as error:  # noqa: BLE001 - the entry point of a thread that everybody asks
        return None, error
