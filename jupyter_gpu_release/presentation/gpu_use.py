"""Remarks of a receipt on the use of the GPU: pure judgement on measured numbers, for runs that have a real one."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.runs import GpuUse, Outcome, RunView
from ..units import format_bytes, format_part, format_percent

#: without word from the rank itself, a GPU counts as untouched only if the sampler had this long to see it
_SURE_AFTER_S = 2.0
#: shorter cells are not worth a remark on their efficiency
_WORTH_A_REMARK_S = 10.0
_STARVED_BELOW = 0.3
_OVERSIZED_BELOW = 0.125


@dataclass(frozen=True)
class UseRemark:
    """One remark; ``loud`` ones are warnings."""

    text: str
    loud: bool = False


def judge(view: RunView, outcome: Outcome) -> list[UseRemark]:
    """Remarks on the GPU's use, the loud ones first; empty when all is well or nothing is known."""
    use = outcome.gpu_use or GpuUse()
    remarks = []
    if use.left_bytes:
        left = format_bytes(use.left_bytes)
        remarks.append(UseRemark(f"{left} of GPU memory did NOT come back after the cell's processes ended", loud=True))
    ran_s = _ran_s(view, outcome)
    untouched = _untouched(use, outcome.untouched_reason, ran_s)
    if untouched:
        remarks.append(untouched)
    elif view.shared_with and use.mean_utilization is not None:
        remarks.append(UseRemark(f"the GPU that it shared was {format_percent(use.mean_utilization)} busy in all"))
    elif ran_s >= _WORTH_A_REMARK_S:
        remarks += [UseRemark(text) for text in (_starved(use), _oversized(use)) if text]
    return remarks


def _ran_s(view: RunView, outcome: Outcome) -> float:
    begun = outcome.started_s if outcome.started_s is not None else view.running_at
    ended = outcome.ended_s if outcome.ended_s is not None else view.gone_at
    return max(0.0, ended - begun) if begun is not None and ended is not None else 0.0


def _untouched(use: GpuUse, reason: str, ran_s: float) -> UseRemark | None:
    if use.peak_utilization or use.peak_memory_bytes:
        return None
    seen_idle = use.peak_utilization == 0 and ran_s >= _SURE_AFTER_S
    if not reason and not seen_idle:
        return None
    peak = "peak 0 %" if use.peak_utilization == 0 else "no work on it"
    return UseRemark(f"the GPU was never touched ({peak}{': ' + reason if reason else ''})", loud=True)


def _starved(use: GpuUse) -> str:
    mean = use.mean_utilization
    if mean is None or mean >= _STARVED_BELOW:
        return ""
    return f"GPU {format_percent(mean)} busy, waiting for data"


def _oversized(use: GpuUse) -> str:
    peak, total = use.peak_memory_bytes, use.total_memory_bytes
    if not peak or not total or peak >= total * _OVERSIZED_BELOW:
        return ""
    return f"{format_part(peak, total)} used: a smaller GPU would do"
