"""Owners of the processes that hold GPU memory: pure matching of what NVML says with what ``/proc`` says.

What cannot be said for certain is ``unattributed``, and nothing is ever done about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from ...host.gpus import Gpu, GpuProcess
from ...host.process_control import CLUSTER_MARKER
from ...host.processes import Process, ProcessTable

#: put into the environment of every kernel of this server; its value is the kernel's id
KERNEL_MARKER = "JUPYTER_GPU_KERNEL"
#: in the environment of all processes of a cluster of ours (they belong to leases, never to a kernel)
#: clock ticks and the moment of the look make the two clocks differ by this at most
_SLACK_S = 1.0


class Owner(Enum):
    """Kinds of holders of memory on a GPU."""

    KERNEL = "kernel"
    TERMINAL = "terminal"
    CLUSTER = "cluster"
    UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, slots=True)
class KernelProcess:
    """The root process of a kernel. ``start_s`` None: not looked up yet."""

    kernel: str
    pid: int
    start_s: float | None = None


class GpuHolding(msgspec.Struct, frozen=True):
    """The memory that one process holds on one GPU, and its owner (``subject``: kernel id or terminal name).

    ``uuid``: of the GPU, or of the MIG instance of it.
    """

    gpu: int
    uuid: str
    process: GpuProcess
    owner: Owner
    subject: str = ""
    why: str = ""


@dataclass(frozen=True)
class Evidence:
    """Ways to look closer at a process; the real ones are in ``host/processes.py``."""

    #: what the process was started with
    environment: Callable[[int], Mapping[str, str]]
    #: whether it has the driver's device open
    uses_device: Callable[[int], bool]
    #: whether process ids here are the driver's own; where not, an id alone proves nothing
    same_ids: bool = True
    #: the Jupyter server's own process
    server: int = 0


class OwnerIndex:
    """The trees of kernels and terminals at one moment; :meth:`owner_of` says whose a process is."""

    def __init__(
        self, table: ProcessTable, kernels: Sequence[KernelProcess], terminals: Mapping[str, int], evidence: Evidence
    ) -> None:
        self._table = table
        self._evidence = evidence
        self._kernels = {entry.kernel for entry in kernels}
        #: kernel id → its processes (empty when its root is gone or is another process by now)
        self.trees = {entry.kernel: self._tree(entry) for entry in kernels}
        self._by_pid: dict[int, tuple[Owner, str]] = {}
        for name, pid in terminals.items():
            self._by_pid |= dict.fromkeys(table.tree(pid), (Owner.TERMINAL, name))
        for kernel, pids in self.trees.items():
            self._by_pid |= dict.fromkeys(pids, (Owner.KERNEL, kernel))

    def _tree(self, kernel: KernelProcess) -> frozenset[int]:
        root = self._table.get(kernel.pid)
        if root is None or (kernel.start_s is not None and abs(root.start_s - kernel.start_s) > _SLACK_S):
            return frozenset()
        return frozenset(self._table.tree(kernel.pid)) if self._is_here(kernel) else frozenset()

    def _is_here(self, kernel: KernelProcess) -> bool:
        """Tell if the id means a process of this machine: what starts kernels on others may tell the id over there."""
        if self._table.descends(kernel.pid, self._evidence.server):
            return True
        return self._evidence.environment(kernel.pid).get(KERNEL_MARKER) == kernel.kernel

    def owner_of(self, pid: int, first_seen_s: float) -> tuple[Owner, str, str]:
        """Owner, subject and the reason, for a process that NVML first named ``first_seen_s`` after boot."""
        process = self._table.get(pid)
        if process is None:
            return Owner.UNATTRIBUTED, "", "no process of this id here (another container or user namespace)"
        if process.start_s > first_seen_s + _SLACK_S:
            return Owner.UNATTRIBUTED, "", "the process of this id is younger than the one that the driver means"
        if not self._evidence.same_ids and not self._evidence.uses_device(pid):
            return Owner.UNATTRIBUTED, "", "process ids here are not the driver's, and this one has no GPU open"
        return self._known(process)

    def _known(self, process: Process) -> tuple[Owner, str, str]:
        environment = self._evidence.environment(process.pid)
        if environment.get(CLUSTER_MARKER):
            return Owner.CLUSTER, "", "started by the GPU cluster"
        if (found := self._by_pid.get(process.pid)) is not None:
            return found[0], found[1], "in its process tree"
        marked = environment.get(KERNEL_MARKER, "")
        if marked in self._kernels:
            # its tree is empty when the kernel is being restarted: what is left of it is still its own
            return Owner.KERNEL, marked, f"carries its {KERNEL_MARKER}"
        return Owner.UNATTRIBUTED, "", "no kernel and no terminal of this server started it"


class FirstSeen:
    """Times at which the driver first named each process; processes that are gone are forgotten."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], float] = {}

    def update(self, gpus: Iterable[Gpu], now_s: float) -> Mapping[tuple[int, int], float]:
        """(GPU, pid) → seconds after boot."""
        present = {(gpu.index, process.pid) for gpu in gpus for process in gpu.processes}
        self._seen = {key: self._seen.get(key, now_s) for key in present}
        return self._seen


def attribute(gpus: Iterable[Gpu], owners: OwnerIndex, seen: Mapping[tuple[int, int], float]) -> tuple[GpuHolding, ...]:
    """Find the owner of what each process holds."""
    held = []
    for gpu in gpus:
        for process in gpu.processes:
            owner, subject, why = owners.owner_of(process.pid, seen[gpu.index, process.pid])
            held.append(GpuHolding(gpu.index, _uuid_of(gpu, process), process, owner, subject, why))
    return tuple(held)


def _uuid_of(gpu: Gpu, process: GpuProcess) -> str:
    """The UUID of what the process holds; some instances share one piece of the memory, and cannot be told apart."""
    own = [part.uuid for part in gpu.slices if part.instance is not None and part.instance == process.instance]
    return own[0] if len(own) == 1 else gpu.uuid
