"""One look at GPUs and processes, made in a thread: NVML may take seconds when a GPU is in trouble."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ...host.gpus import Gpu, Nvml
from ...host.processes import (
    ProcessTable,
    ProcessWatch,
    cpu_s_of,
    environment_of,
    has_open,
    in_first_namespace,
    since_boot_s,
)
from ...host.threads import DaemonThreads
from .attribution import Evidence, FirstSeen, GpuHolding, KernelProcess, Owner, OwnerIndex, attribute

#: what a process that uses a GPU has open (the second: Windows' subsystem for Linux)
DEVICES = ("/dev/nvidia", "/dev/dxg")
_SLOW_S = 10.0
_BELIEVED_S = 10.0


@dataclass(frozen=True)
class Sample:
    """One look. ``cpu_s``: kernel → (start of its root process, CPU seconds of its tree so far)."""

    at_s: float
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""
    held: tuple[GpuHolding, ...] = ()
    cpu_s: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def held_by(self, kernel: str) -> list[GpuHolding]:
        """The memory that a kernel's processes hold."""
        return self._by_kernel.get(kernel, [])

    @cached_property
    def by_gpu(self) -> dict[int, list[GpuHolding]]:
        """The memory that is held on each GPU."""
        found: dict[int, list[GpuHolding]] = {}
        for held in self.held:
            found.setdefault(held.gpu, []).append(held)
        return found

    @cached_property
    def by_index(self) -> dict[int, Gpu]:
        """The GPUs by their index."""
        return {gpu.index: gpu for gpu in self.gpus}

    @cached_property
    def _by_kernel(self) -> dict[str, list[GpuHolding]]:
        found: dict[str, list[GpuHolding]] = {}
        for held in self.held:
            if held.owner is Owner.KERNEL:
                found.setdefault(held.subject, []).append(held)
        return found


class Sampler:
    """Looks; keeps what spares work from one look to the next. One thread at a time."""

    def __init__(self, nvml: Nvml, devices: Sequence[str] = DEVICES) -> None:
        self._nvml = nvml
        self._devices = tuple(devices)
        self._same_ids = in_first_namespace()
        self._processes = ProcessWatch()
        self._table = ProcessTable({})
        self._asked: tuple[Sequence[KernelProcess], Mapping[str, int]] = ((), {})
        self._owners = self._owners_in(self._table, (), {})
        self._seen = FirstSeen()
        self._environments: dict[tuple[int, float], Mapping[str, str]] = {}
        #: process → when it was last seen to have a GPU open
        self._using: dict[tuple[int, float], float] = {}

    def sample(self, kernels: Sequence[KernelProcess], terminals: Mapping[str, int]) -> Sample:
        """Blocks for some milliseconds; longer where the driver does."""
        at_s = time.monotonic()
        reading = self._nvml.read()
        table, asked = self._processes.read_processes(), (tuple(kernels), dict(terminals))
        if table is not self._table or asked != self._asked:
            self._forget(table)
            self._table, self._asked = table, asked
            self._owners = self._owners_in(table, *asked)
        owners = self._owners
        held = attribute(reading.gpus, owners, self._seen.update(reading.gpus, since_boot_s()))
        cpu_s = {
            entry.kernel: (root.start_s, cpu_s_of(owners.trees[entry.kernel]))
            for entry in kernels
            if owners.trees[entry.kernel] and (root := table.get(entry.pid)) is not None
        }
        return Sample(at_s, reading.gpus, reading.problem, held, cpu_s)

    def _owners_in(
        self, table: ProcessTable, kernels: Sequence[KernelProcess], terminals: Mapping[str, int]
    ) -> OwnerIndex:
        evidence = Evidence(
            lambda pid: self._environment(table, pid),
            lambda pid: self._uses_device(table, pid),
            self._same_ids,
            os.getpid(),
        )
        return OwnerIndex(table, kernels, terminals, evidence)

    def _environment(self, table: ProcessTable, pid: int) -> Mapping[str, str]:
        process = table.get(pid)
        if process is None:
            return {}
        key = (pid, process.start_s)
        if key not in self._environments:
            self._environments[key] = environment_of(pid)
        return self._environments[key]

    def _uses_device(self, table: ProcessTable, pid: int) -> bool:
        """A process that has it open is believed to for some seconds: a kernel may have hundreds of files open."""
        process, now_s = table.get(pid), time.monotonic()
        if process is None:
            return False
        key = (pid, process.start_s)
        if now_s - self._using.get(key, float("-inf")) > _BELIEVED_S:
            if not has_open(pid, self._devices):
                self._using.pop(key, None)
                return False
            self._using[key] = now_s
        return True

    def _forget(self, table: ProcessTable) -> None:
        living = {(process.pid, process.start_s) for process in table.processes.values()}
        self._environments = {key: known for key, known in self._environments.items() if key in living}
        self._using = {key: seen_s for key, seen_s in self._using.items() if key in living}


class SampleLoop:
    """The last sample, and the thread that makes them. A driver that hangs leaves the old one, marked as such."""

    def __init__(self, looker: Sampler) -> None:
        self._looker = looker
        self._threads = DaemonThreads(1, "jgr-nvml")
        self._pending: asyncio.Future[Sample] | None = None
        self.last = Sample(time.monotonic(), problem="not looked yet")

    async def next(self, kernels: Sequence[KernelProcess], terminals: Mapping[str, int]) -> Sample | None:
        """A fresh sample; None while the driver does not answer (then :attr:`problem` says so)."""
        if self._pending is None:
            self._pending = self._threads.begin(self._looker.sample, kernels, terminals)
        done, _ = await asyncio.wait([self._pending], timeout=_SLOW_S)
        if not done:
            return None
        pending, self._pending = self._pending, None
        self.last = pending.result()
        return self.last

    @property
    def problem(self) -> str:
        """The reason why there are no figures, or only old ones."""
        if self._pending is not None and time.monotonic() - self.last.at_s > _SLOW_S:
            return f"the NVIDIA driver has not answered for {time.monotonic() - self.last.at_s:.0f} s"
        return self.last.problem
