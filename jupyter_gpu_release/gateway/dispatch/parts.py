"""Parts of GPUs that are asked for: their size, by share or by memory, and if the cluster's GPUs allow it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec.structs import replace

from ...errors import ImpossibleAskError, OptionError
from ...protocol.runs import ResourceAsk, RunRequest
from ...scheduling.plugins.node_filters import gpu_memory, gpu_type, labels
from ...scheduling.queues.queues_file import QueuesFile
from ...scheduling.resource_requests import to_run
from ...scheduling.workload import Node
from ...settings.built_in import BUILT_IN
from ...units import format_bytes

_LEAST: float = BUILT_IN["least_gpu_part"].default
_CONTEXT_BYTES: int = BUILT_IN["cuda_context_bytes"].default
_STEP = 0.01


def check_part(ask: ResourceAsk) -> None:
    """Raise :class:`OptionError` for a part that is none, or that several ranks would share: clients check it, too."""
    if not is_part(ask):
        return
    is_share = _LEAST <= ask.gpus < 1 and abs(ask.gpus / _STEP - round(ask.gpus / _STEP)) <= 1e-6
    if ask.gpu_memory_bytes is None and not is_share:
        hint = f"write a whole number, or {_LEAST:g} to 0.99 in steps of {_STEP:g}"
        raise OptionError(f"--gpus {ask.gpus:g}: neither whole GPUs nor a part of one", hint=hint)
    if ask.ranks > 1 or ask.nodes > 1 or ask.min_gpus is not None:
        raise OptionError(f"--gpus {ask.gpus:g} in {ask.ranks} ranks: a part of a GPU is one rank's", hint="--ranks 1")


def is_part(ask: ResourceAsk) -> bool:
    """Tell if it is for a part of a GPU, by share or by memory."""
    return ask.gpu_memory_bytes is not None or ask.gpus != int(ask.gpus)


def in_least_parts(request: RunRequest) -> RunRequest:
    """The request with the least that its ``--gpu-memory`` may come to, where it is not known yet."""
    ask = request.ask
    return request if ask.gpu_memory_bytes is None else replace(request, ask=replace(ask, gpus=_LEAST))


def part_of_user(file: QueuesFile, user: str, request: RunRequest, cluster: Iterable[Node]) -> RunRequest:
    """As :func:`with_part`, where the queues file allows that; raises :class:`OptionError` where it does not."""
    what = f"--gpus {request.ask.gpus:g}" if request.ask.gpu_memory_bytes is None else "--gpu-memory"
    if is_part(request.ask):
        file.check_sharing(user, what)
    placed = with_part(request, file.shared(cluster))
    if is_part(placed.ask):
        file.check_sharing(user, what, placed.ask.gpus)
    return placed


def with_part(request: RunRequest, cluster: Iterable[Node]) -> RunRequest:
    """The request with the part of a GPU that its ``--gpu-memory`` is on all GPUs that it may get.

    Raises :class:`ImpossibleAskError` where a part has no room for CUDA itself, :class:`OptionError` where it is not
    known how much memory the GPUs have, or where it is kept (a GPU is kept whole).
    """
    ask = request.ask
    if not is_part(ask):
        return replace(request, ask=replace(ask, gpus=int(ask.gpus)))
    if request.keep_s or request.keep_auto:
        raise OptionError("--keep with a part of a GPU: others have the rest of it", hint="leave --keep out")
    suitable = [node for node in cluster if node.gpus and _suits(ask, node) and node.gpu_memory_bytes]
    sizes = [node.gpu_memory_bytes for node in suitable]
    if ask.gpu_memory_bytes is not None:
        least = max((1 / node.parts_per_gpu for node in suitable), default=_LEAST)
        part = _part_for(ask.gpu_memory_bytes, sizes, least)
        request = replace(request, ask=replace(ask, gpus=part))
        sizes = [size for size in sizes if size * part >= ask.gpu_memory_bytes]
    if sizes and request.ask.gpus < 1:
        _check_room(request.ask.gpus, min(sizes))
    return request


def _check_room(part: float, smallest: int) -> None:
    least = 2 * _CONTEXT_BYTES
    if part * smallest < least:
        raise ImpossibleAskError(
            f"{part:g} of a GPU with {format_bytes(smallest)} is {format_bytes(int(part * smallest))}, of which CUDA"
            f" itself takes {format_bytes(_CONTEXT_BYTES)}",
            hint=f"ask for --gpus {math.ceil(least / smallest / _STEP) * _STEP:.2g} or more",
        )


def _suits(ask: ResourceAsk, node: Node) -> bool:
    run = to_run("", replace(ask, gpu_memory_bytes=None))
    return node.parts_per_gpu > 0 and all(lack(run, node) is None for lack in (gpu_type, gpu_memory, labels))


def _part_for(wanted: int, sizes: list[int], least: float) -> float:
    """The part of the smallest of these GPUs that is large enough, which is at least so much of the others."""
    if not sizes:
        raise OptionError(
            "--gpu-memory: the GPUs do not tell their memory, or may not be shared", hint="write --gpus 0.5"
        )
    enough = [size for size in sizes if size >= wanted]
    if not enough:
        most = format_bytes(max(sizes))
        hint = "ask for less, or for whole GPUs: --gpus 2"
        raise ImpossibleAskError(f"--gpu-memory {format_bytes(wanted)}: the largest GPU has {most}", hint=hint)
    part = math.ceil(round(max(least, wanted / min(enough)) / _STEP, 6)) * _STEP
    return 1 if part > 1 - _STEP / 2 else round(part, 2)
