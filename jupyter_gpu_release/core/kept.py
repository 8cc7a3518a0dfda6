"""GPUs that stay with a kernel after its cell (``--keep``): after which ends, for how long, and in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from .resources import format_seconds

if TYPE_CHECKING:
    from .documents import GpuRow
    from .messages import Outcome

#: ``--keep auto`` lasts at most this
AUTO_KEEP_S = 300.0
#: ends after which the person will run the cell again, on these GPUs most likely
_KEPT_AFTER = frozenset({"ok", "error", "interrupted", "timeout"})
#: exceptions by which PyTorch, CuPy and JAX say that the card, its driver or its memory failed them
_GPU_ERRORS = frozenset({
    "AcceleratorError", "OutOfMemoryError", "CUDARuntimeError", "CUDADriverError", "XlaRuntimeError", "NcclError",
})  # fmt: skip
_GPU_WORDS = ("CUDA error", "CUDA driver error", "HIP error", "cuDNN error", "NCCL error", "CUDA out of memory")


class KeptLease(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the GPUs of a run stayed with its kernel. ``until``: unix seconds; ``auto``: while nobody waits for them."""

    until: float
    for_s: float
    auto: bool = False
    #: ``--keep`` asked for longer than this gateway allows
    capped: bool = False


def is_worth_keeping(outcome: Outcome) -> bool:
    """Whether the next cell may have the same GPUs: not after a crash, a kill, too little memory or a GPU's error."""
    error = outcome.error
    if outcome.status not in _KEPT_AFTER or (outcome.gpu_use is not None and outcome.gpu_use.left_bytes):
        return False
    if error is None:
        return True
    return not (error.code or error.ename in _GPU_ERRORS or error.evalue.startswith(_GPU_WORDS))


def kept_words(kept: KeptLease) -> str:
    """``kept for 30 s (until 14:03:10)``."""
    if kept.auto:
        return f"kept until somebody waits, at most {span(kept.for_s)} (until {clock(kept.until)})"
    most = ", the longest here" if kept.capped else ""
    return f"kept for {span(kept.for_s)}{most} (until {clock(kept.until)})"


def card_state(card: GpuRow, now_s: float) -> str:
    """A card's state with its countdown: ``warm, 24 s left``."""
    if card.warm_until is None:
        return card.state
    left_s = round(card.warm_until - now_s)
    return f"{card.state}, {f'{span(left_s)} left' if left_s >= 1 else 'ending'}"


def span(seconds: float) -> str:
    """As :func:`format_seconds`, but ``30 s`` where a time was chosen rather than measured."""
    return f"{seconds:g} s" if 1 <= seconds < 60 else format_seconds(seconds)


def clock(at_s: float) -> str:
    """``14:03:10``, in local time."""
    return time.strftime("%H:%M:%S", time.localtime(at_s))
