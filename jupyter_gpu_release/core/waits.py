"""What a persisting run waits for, in words."""

from __future__ import annotations

import time

from .messages import PersistWait
from .resources import format_bytes

_KEPT = {
    "memory": "kept in the node's memory",
    "disk": "kept on the node's own disk",
    "gone": "kept by a node that is away",
}


def sentence(wait: PersistWait) -> str:
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
    when = "" if wait.next_try_at is None else f", next try at {_clock(wait.next_try_at)}"
    kept = _KEPT.get(wait.kept, "")
    return f"{size} of results cannot be written to {wait.path} ({wait.reason}{free}); {kept}{when}"


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
