"""The options of a request, as ``%%gpu_train`` writes them."""

from __future__ import annotations

from ..protocol.runs import ResourceAsk, RunRequest
from ..units import format_bytes, format_seconds

Options = dict[str, str]


def written_options(request: RunRequest) -> Options:
    """Options that differ from their defaults, and the number of GPUs: name → value, empty for a flag."""
    found = _asked(request.ask, is_gang=request.is_gang)
    times = {
        "timeout": request.timeout_s,
        "wait": request.wait_s,
        "rank-timeout": request.rank_timeout_s,
        "keep": request.keep_s or None,
    }
    found |= {name: format_seconds(value) for name, value in times.items() if value is not None}
    words = {"keep": "auto" if request.keep_auto else "", "name": request.name}
    words |= {"queue": _unless(request.queue, "default"), "priority": _unless(request.priority, "normal")}
    words["retries"] = str(request.retries) if request.retries else ""
    words["on-disconnect"] = _unless(request.on_disconnect, "continue")
    found |= {name: value for name, value in words.items() if value}
    flags = {"cache": bool(request.cache_key), "detach": request.detach, "fresh": request.fresh, "pin": request.pin}
    flags["restartable"] = bool(request.restartable)
    return found | {name: "" for name, is_set in flags.items() if is_set}


def _asked(ask: ResourceAsk, *, is_gang: bool) -> Options:
    found = {"gpus": str(ask.gpus)}
    numbers = {"ranks": ask.ranks if is_gang else 1, "nodes": ask.nodes}
    found |= {name: str(value) for name, value in numbers.items() if value > 1}
    found |= {"nodes": "any"} if ask.any_nodes and not ask.may_spread else {}
    if ask.min_gpus is not None:
        found["min-gpus"] = str(ask.min_gpus)
    if ask.ps or ask.evaluator:
        found["ps"] = f"{ask.ps},evaluator" if ask.evaluator else str(ask.ps)
    if ask.gpu_type:
        found["gpu-type"] = ask.gpu_type
    if ask.cpus is not None:
        found["cpus"] = f"{ask.cpus:g}"
    if ask.gpu_memory_bytes is not None:
        del found["gpus"]
    sizes = {"gpu-memory": ask.gpu_memory_bytes, "memory": ask.memory_bytes, "min-gpu-memory": ask.min_gpu_memory_bytes}
    found |= {name: format_bytes(size).replace(" ", "") for name, size in sizes.items() if size is not None}
    if ask.labels:
        found["label"] = " ".join(f"{name}={value}" for name, value in ask.labels.items())
    return found


def _unless(value: str, default: str) -> str:
    return "" if value == default else value
