"""Sentences about waiting results and kept GPUs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..protocol.runs import KeptLease, PersistWait
from ..units import format_bytes, format_seconds

if TYPE_CHECKING:
    from ..protocol.rest import GpuRow


def kept_words(kept: KeptLease) -> str:
    """``kept for 30 s (until 14:03:10)``."""
    if kept.auto:
        return f"kept until somebody waits, at most {format_span(kept.for_s)} (until {format_clock(kept.until)})"
    most = ", the longest here" if kept.capped else ""
    return f"kept for {format_span(kept.for_s)}{most} (until {format_clock(kept.until)})"


def gpu_state(gpu: GpuRow, now_s: float) -> str:
    """A GPU's state with its countdown: ``warm, 24 s left``."""
    if gpu.warm_until is None:
        return gpu.state
    left_s = round(gpu.warm_until - now_s)
    return f"{gpu.state}, {f'{format_span(left_s)} left' if left_s >= 1 else 'ending'}"


def format_span(seconds: float) -> str:
    """Like :func:`format_seconds`, but ``30 s`` where a time was chosen rather than measured."""
    return f"{seconds:g} s" if 1 <= seconds < 60 else format_seconds(seconds)


def format_clock(at_s: float) -> str:
    """``14:03:10``, in local time."""
    return time.strftime("%H:%M:%S", time.localtime(at_s))


_KEPT = {
    "memory": "kept in the node's memory",
    "disk": "kept on the node's own disk",
    "gone": "kept by a node that is away",
}


def describe_wait(wait: PersistWait) -> str:
    """One line: path, bytes needed, bytes free, why not yet, where they are kept, when the next try is.

    Examples
    --------
    ``1 GiB of results cannot be written to /store/runs/…/values.graph (No space left on device, 8 MiB free); kept in
    the node's memory, next try at 14:03:12``
    """
    size = format_bytes(wait.bytes)
    if wait.kept == "gone":
        return f"{size} of results for {wait.path} are {_KEPT['gone']} ({wait.reason})"
    if not wait.reason:
        return f"writing {size} to {wait.path}"
    free = "" if wait.free_bytes is None else f", {format_bytes(wait.free_bytes)} free"
    when = "" if wait.next_try_at is None else f", next try at {format_clock(wait.next_try_at)}"
    kept = _KEPT.get(wait.kept, "")
    return f"{size} of results cannot be written to {wait.path} ({wait.reason}{free}); {kept}{when}"
