"""Whose GPU memory it is: process trees, sessions, markers, other namespaces, reused ids. Unsure is unattributed."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpu_release.host.gpus import Gpu, GpuProcess, MigSlice
from jupyter_gpu_release.host.process_control import CLUSTER_MARKER
from jupyter_gpu_release.host.processes import Process, ProcessTable
from jupyter_gpu_release.server_extension.api.views import gpu_rows
from jupyter_gpu_release.server_extension.monitoring.attribution import (
    KERNEL_MARKER,
    Evidence,
    FirstSeen,
    GpuHolding,
    KernelProcess,
    Owner,
    OwnerIndex,
    attribute,
)
from jupyter_gpu_release.server_extension.monitoring.sampling import Sample

_PROCESSES = [
    Process(1, 0, 1, 0.0),
    Process(10, 1, 10, 100.0),  # the Jupyter server
    Process(20, 10, 20, 200.0),  # a kernel
    Process(21, 20, 20, 201.0),  # its DataLoader worker
    Process(22, 1, 20, 202.0),  # a worker whose parent ended
    Process(23, 1, 23, 203.0),  # a worker that made a session of its own
    Process(30, 10, 30, 300.0),  # a terminal
    Process(31, 30, 30, 301.0),  # a script in it
    Process(40, 20, 40, 400.0),  # a cluster that the kernel started
    Process(50, 1, 50, 500.0),  # somebody else's
]
_KERNELS = [KernelProcess("k", 20, 200.0)]


def _held(
    *pids: int,
    environments: Mapping[int, Mapping[str, str]] | None = None,
    same_ids: bool = True,
    users: frozenset[int] = frozenset(),
    kernels: list[KernelProcess] = _KERNELS,
    seen_s: float = 1000.0,
) -> list[GpuHolding]:
    evidence = Evidence(lambda pid: (environments or {}).get(pid, {}), lambda pid: pid in users, same_ids, 10)
    table = ProcessTable({process.pid: process for process in _PROCESSES})
    owners = OwnerIndex(table, kernels, {"1": 30}, evidence)
    gpus = [Gpu(0, "GPU-0", processes=tuple(GpuProcess(pid, 100) for pid in pids))]
    return list(attribute(gpus, owners, FirstSeen().update(gpus, seen_s)))


def _owner(pid: int, **facts: object) -> tuple[str, str]:
    (held,) = _held(pid, **facts)  # type: ignore[arg-type]
    assert held.why
    return held.owner.value, held.subject


def test_a_kernel_its_children_and_its_session() -> None:
    for pid in (20, 21, 22):
        assert _owner(pid) == ("kernel", "k")


def test_a_worker_that_left_the_tree_is_known_by_its_marker() -> None:
    assert _owner(23) == ("unattributed", "")
    assert _owner(23, environments={23: {KERNEL_MARKER: "k"}}) == ("kernel", "k")
    assert _owner(23, environments={23: {KERNEL_MARKER: "of-another-server"}}) == ("unattributed", "")


def test_a_cluster_is_no_kernels_though_a_kernel_started_it() -> None:
    environment = {40: {CLUSTER_MARKER: "c", KERNEL_MARKER: "k"}}
    assert _owner(40, environments=environment) == ("cluster", "")


def test_a_script_in_a_terminal_is_the_terminals() -> None:
    assert _owner(31) == ("terminal", "1")
    assert _owner(31, kernels=[KernelProcess("k2", 31, 301.0)]) == ("kernel", "k2"), "a kernel that was started there"


def test_strangers_and_processes_of_other_containers() -> None:
    assert _owner(50) == ("unattributed", "")
    assert _owner(4711) == ("unattributed", "")


def test_a_process_younger_than_what_the_driver_saw_is_another() -> None:
    assert _owner(21, seen_s=150.0) == ("unattributed", "")
    assert _owner(21, seen_s=201.0) == ("kernel", "k")


def test_a_kernel_whose_id_went_to_another_process_has_no_tree() -> None:
    assert _owner(20, kernels=[KernelProcess("k", 20, 120.0)]) == ("unattributed", "")


def test_an_id_of_another_machine_is_nobody_here() -> None:
    """What starts a kernel elsewhere may say the id that it has there; here that is some stranger's process."""
    remote = [KernelProcess("k", 50, 500.0)]
    assert _owner(50, kernels=remote) == ("unattributed", "")
    assert _owner(50, kernels=remote, environments={50: {KERNEL_MARKER: "another"}}) == ("unattributed", "")
    assert _owner(50, kernels=remote, environments={50: {KERNEL_MARKER: "k"}}) == ("kernel", "k")


def test_in_another_namespace_an_id_alone_proves_nothing() -> None:
    assert _owner(20, same_ids=False) == ("unattributed", "")
    assert _owner(20, same_ids=False, users=frozenset({20})) == ("kernel", "k")


def test_first_seen_forgets_what_is_gone() -> None:
    seen = FirstSeen()
    gpus = [Gpu(0, processes=(GpuProcess(5, 1),))]
    assert seen.update(gpus, 10.0)[0, 5] == 10.0
    assert seen.update(gpus, 20.0)[0, 5] == 10.0
    assert seen.update([], 30.0) == {}
    assert seen.update(gpus, 40.0)[0, 5] == 40.0


def test_every_process_is_somebodys_and_none_is_lost() -> None:
    held = _held(20, 31, 50, 4711)
    assert [entry.owner for entry in held] == [Owner.KERNEL, Owner.TERMINAL, Owner.UNATTRIBUTED, Owner.UNATTRIBUTED]


def test_what_a_process_holds_of_a_divided_gpu_is_its_instances() -> None:
    """Two instances that share one piece of the memory cannot be told apart: it is the GPU's."""
    slices = tuple(MigSlice(at, of, f"MIG-{at}", 10, 5, "H100 MIG 1g.10gb") for at, of in enumerate((3, 5, 5)))
    processes = (GpuProcess(20, 5, instance=3), GpuProcess(21, 7, instance=5), GpuProcess(50, 5, instance=3))
    gpu = Gpu(0, "GPU-0", slices=slices, processes=processes)
    owners = OwnerIndex(
        ProcessTable({process.pid: process for process in _PROCESSES}), _KERNELS, {}, Evidence(lambda _: {}, bool)
    )
    held = attribute([gpu], owners, FirstSeen().update([gpu], 1000.0))
    assert [holding.uuid for holding in held] == ["MIG-0", "GPU-0", "MIG-0"]
    (row,) = gpu_rows(Sample(0.0, (gpu,), held=held))
    assert row.unattributed_bytes == 5
    assert [(part.name, part.unattributed_bytes) for part in row.mig] == [
        ("H100 MIG 1g.10gb", unattributed) for unattributed in (5, 0, 0)
    ]
