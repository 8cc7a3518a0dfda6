"""The records of the answers, made from what the monitor knows."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable

from ...host.gpus import Gpu
from ...protocol.rest import RunRow
from ..culling.monitor import Monitor
from ..culling.policy import Observation, at_work
from ..models import CellRun, KernelGpu, KernelRow, LocalGpu, MigInstance
from ..monitoring.attribution import GpuHolding, Owner
from ..monitoring.kernels import Watch
from ..monitoring.sampling import Sample


def newest_of_cells(runs: Iterable[RunRow], is_here: Callable[[str], bool]) -> list[CellRun]:
    """The newest run of each cell of the notebook; ``runs``: the newest first.

    Imported runs are left out: their cells are of somebody else's notebook, whatever they are called.
    """
    found: dict[str, CellRun] = {}
    for row in runs:
        if row.cell and not row.imported_from and row.cell not in found and is_here(row.notebook):
            ended_at = row.gone_at if row.gone_at is not None else row.finished_at
            found[row.cell] = CellRun(row.cell, row.run, row.state, row.submitted_at, ended_at)
    return list(found.values())


def is_at(path: str, notebook: str, root: str) -> bool:
    """Tell if the notebook that a kernel was started for is the one that the contents API calls ``notebook``."""
    wanted = notebook.strip("/")
    if not path or not wanted:
        return False
    return os.path.normpath(path) in (wanted, os.path.normpath(os.path.join(os.path.expanduser(root), wanted)))


def gpu_rows(sample: Sample) -> list[LocalGpu]:
    """This machine's GPUs."""
    return [_gpu_row(gpu, sample.by_gpu.get(gpu.index, [])) for gpu in sample.gpus]


def _gpu_row(gpu: Gpu, held: list[GpuHolding]) -> LocalGpu:
    strange: Counter[str] = Counter()
    for holding in held:
        if holding.owner is Owner.UNATTRIBUTED:
            strange[holding.uuid] += holding.process.used_bytes or 0
    return LocalGpu(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        used_bytes=gpu.used_bytes,
        utilization=gpu.utilization,
        temperature_c=gpu.temperature_c,
        power_w=gpu.power_w,
        unattributed_bytes=strange.total(),
        problem=gpu.problem,
        mig=[
            MigInstance(part.index, part.uuid, part.memory_bytes, part.used_bytes, part.name, strange[part.uuid])
            for part in gpu.slices
        ],
    )


def kernel_row(monitor: Monitor, watch: Watch) -> KernelRow:
    """One kernel."""
    now_s, held = time.monotonic(), monitor.sample.held_by(watch.kernel)
    track, decision = monitor.tracks.get(watch.kernel), monitor.decision_of(watch.kernel)
    sign = at_work(Observation(watch.kernel, "kernel", monitor.signals.get(watch.kernel, ())))
    kept_s = None if track is None or track.keep_until_s is None else max(0.0, track.keep_until_s - now_s) or None
    return KernelRow(
        id=watch.kernel,
        name=watch.name,
        path=watch.path,
        connections=monitor.watches.connections(watch.kernel),
        used_bytes=sum(entry.process.used_bytes or 0 for entry in held),
        gpus=_by_gpu(held),
        busy=sign is not None,
        why=sign.words if sign is not None else "idle",
        idle_s=None if sign is not None or track is None else max(0.0, now_s - track.idle_since_s),
        decision=decision.action.word,
        reason=decision.reason,
        due_s=decision.due_s,
        kept_s=kept_s,
        suspended=track is not None and track.suspended,
    )


def _by_gpu(held: list[GpuHolding]) -> list[KernelGpu]:
    rows = []
    for index, uuid in sorted({(entry.gpu, entry.uuid) for entry in held}):
        own = [entry for entry in held if (entry.gpu, entry.uuid) == (index, uuid)]
        known = [entry.process.used_bytes for entry in own if entry.process.used_bytes is not None]
        used = sum(known) if len(known) == len(own) else None
        rows.append(KernelGpu(index, uuid, used, sorted({entry.process.pid for entry in own})))
    return rows
