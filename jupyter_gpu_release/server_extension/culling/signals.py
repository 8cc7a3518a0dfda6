"""Signs of work of kernels and leases (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...host.gpus import Gpu
from ...protocol.rest import RunRow, StatusDocument
from ..monitoring.attribution import GpuHolding
from .policy import Signal

#: states in which Jupyter itself is about to do something with the kernel
_PASSING = frozenset({"starting", "restarting", "autorestarting", "terminating"})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits within which use counts as idle: shares from 0 to 1, CPU in cores."""

    gpu: float = 0.03
    cpu_cores: float = 0.1
    #: a GPU that does not tell its use (MIG): False leaves it to the other signals
    unknown_use_is_busy: bool = True


def conversation_signal(said: tuple[bool | None, str], execution_state: str) -> Signal:
    """Signal from the kernel's messages, and from Jupyter's status where it is about the process, not the cell.

    Jupyter may listen later than we do, and believes for ever that a quiet kernel is starting which has answered us.
    """
    has_answered = said[0] is not None
    if execution_state in _PASSING and not (has_answered and execution_state == "starting"):
        return Signal("cell", None, f"the kernel is {execution_state}")
    return Signal("cell", *said)


def gpu_signal(held: Sequence[GpuHolding], gpus: Mapping[int, Gpu], limits: Thresholds) -> tuple[Signal, float | None]:
    """Tell if the kernel's processes keep a GPU busy, and how much. Without a share of its own a process is taken
    to be all that its GPU does: too much rather than too little. ``gpus``: by index.
    """
    most: float | None = 0.0
    for entry in held:
        gpu = gpus[entry.gpu]
        use = entry.process.utilization if entry.process.utilization is not None else gpu.utilization
        if use is not None and use > limits.gpu:
            return Signal("gpu", True, f"GPU {gpu.index} is {use:.0%} busy"), use
        most = None if use is None or most is None else max(most, use)
    if most is None:
        busy = None if limits.unknown_use_is_busy else False
        return Signal("gpu", busy, "the driver does not tell how busy its GPU is"), None
    return Signal("gpu", False, "its GPUs are idle"), most


def cpu_signal(
    before: tuple[float, tuple[float, float]] | None, now: tuple[float, tuple[float, float]] | None, limits: Thresholds
) -> Signal:
    """CPU of the process tree between two samples: (time of the sample, (start of the root, CPU seconds)).

    Seconds of a child that ended vanish from the sum: then nothing is known of this interval.
    """
    if now is None:
        return Signal("cpu", None, "its process is not to be found")
    if before is None or before[1][0] != now[1][0] or now[0] <= before[0]:
        return Signal("cpu", None, "its CPU use is measured for the first time")
    cores = (now[1][1] - before[1][1]) / (now[0] - before[0])
    if cores < 0:
        return Signal("cpu", None, "a process of it just ended")
    if cores > limits.cpu_cores:
        return Signal("cpu", True, f"its processes use {cores:.1f} cores")
    return Signal("cpu", False, "its processes wait")


def run_signal(kernel: str, path: str, status: StatusDocument | None, *, current: bool) -> Signal:
    """A kernel that waits for a remote run is at work: its idle time begins at the run's end.

    ``current`` false: ``status`` is the last that was heard of a gateway that is silent now.
    """
    for run in status.runs if status is not None else ():
        if is_of(run, kernel, path):
            words = f"its run {run.run} is {run.state}"
            return Signal("run", True, words) if current else Signal("run", None, f"{words}, or was")
    return Signal("run", False, "it has no run under way")


def is_of(run: RunRow, kernel: str, path: str) -> bool:
    """Tell if a run was sent by this kernel. One that does not know its id is matched by its notebook, which it names
    by file or by whole path.
    """
    if run.kernel:
        return run.kernel == kernel
    if not path or not run.notebook:
        return False
    return run.notebook == path or run.notebook.rsplit("/", 1)[-1] == path.rsplit("/", 1)[-1]


def held_bytes(held: Sequence[GpuHolding]) -> int | None:
    """Sum of what is held; None when something is held whose size the driver does not tell."""
    known = [entry.process.used_bytes for entry in held]
    if any(size is None for size in known):
        return None
    return sum(size or 0 for size in known)


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """One lease (named by its run) at one moment. ``utilization``: mean over its GPUs; None: not told."""

    user: str
    queue: str
    path: str
    signals: tuple[Signal, ...]
    utilization: float | None
    #: when a warm one ends by itself, at the latest
    ends_at_s: float | None = None


def leases_of(status: StatusDocument, users: Collection[str], clock_s: float = 0.0) -> dict[str, LeaseSeen]:
    """Run → lease, of these users alone. ``clock_s``: the policy's clock minus unix time."""
    warm = {row.lease: row for row in status.warm}
    runs = {run.run: run for run in status.runs}
    held = [(has, gpu) for node in status.nodes for gpu in node.gpus for has in gpu.holders if has.user in users]
    found: dict[str, LeaseSeen] = {}
    for run, user in {has.run: has.user for has, _ in held}.items():
        own = [gpu for has, gpu in held if has.run == run]
        known = [gpu.utilization for gpu in own if gpu.utilization is not None]
        signal = Signal("run", False, "nothing runs on it")
        known_as = runs.get(run) or warm.get(run)
        if any(gpu.state != "warm" for gpu in own):
            state = runs[run].state if run in runs else "held"
            signal = Signal("run", True, f"its run is {state}")
        found[run] = LeaseSeen(
            user=user,
            queue=known_as.queue if known_as is not None else "",
            path=known_as.notebook if known_as is not None else "",
            signals=(signal,),
            utilization=sum(known) / len(known) if len(known) == len(own) else None,
            ends_at_s=warm[run].until + clock_s if run in warm else None,
        )
    return found
