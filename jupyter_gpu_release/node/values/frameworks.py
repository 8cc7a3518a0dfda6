"""Questions of the rank to the libraries that can use a GPU and are loaded; it imports none."""

from __future__ import annotations

import re
import types
from typing import Any

from ...adapters.adapter import Adapter
from ...adapters.registry import adapters_of, first_answer, loaded_adapters
from ...units import format_bytes

_DEVICE_WORD = re.compile(r"(?:cuda|gpu|mps|xpu)(?::\d+)?", re.IGNORECASE)


def loaded_frameworks() -> list[Adapter]:
    """Frameworks that can use a GPU and are imported here."""
    return [adapter for adapter in loaded_adapters() if adapter.can_use_gpu]


def error_hints(error: str, ranks: int, gpus: int) -> list[str]:
    """Explain frameworks' own words in a cell that has so many ranks, each with ``gpus`` GPUs."""
    return [hint for framework in loaded_frameworks() for hint in framework.hints(error, ranks, gpus)]


def part_hint(error: str, part: float, part_bytes: int) -> list[str]:
    """Name the part of a GPU that a cell has, where its error says that there was not enough memory."""
    if not part or not any(framework.says_memory_is_out(error) for framework in loaded_frameworks()):
        return []
    size = f" ({format_bytes(part_bytes)})" if part_bytes else ""
    return [f"the cell has {part:g} of a GPU{size}, and no more of its memory: --gpus 1 has all of it"]


def lacks_gpu(error: str) -> bool:
    """Tell if an error says, in a framework's words, that this process sees no GPU."""
    return any(framework.lacks_gpu(error) for framework in loaded_frameworks())


def has_touched_gpu() -> bool:
    """Tell if a framework has opened the GPU in this process."""
    return any(framework.has_touched_gpu() for framework in loaded_frameworks())


def gpu_is_busy() -> bool:
    """Tell if reading the GPU's memory could wait, for ever if another rank does not come to a collective."""
    return has_touched_gpu() and any(framework.is_busy() for framework in loaded_frameworks())


def is_device_word(name: str, value: Any) -> bool:
    """Tell if a name holds a GPU's name as text (``device = "cuda"``)."""
    return type(value) is str and "dev" in name.lower() and _DEVICE_WORD.fullmatch(value) is not None


def _chosen_device(value: Any) -> str | None:
    return first_answer(adapter.chosen_device(value) for adapter in adapters_of(type(value)))


def is_gpu_device(value: Any) -> bool:
    """Tell if a value is a framework's object for a GPU."""
    chosen = _chosen_device(value)
    return chosen is not None and chosen.partition(":")[0] not in ("cpu", "meta")


def is_cpu_choice(value: Any) -> bool:
    """Tell if a value chooses the CPU: a framework's object for it, or the word."""
    chosen = value.lower() if type(value) is str else _chosen_device(value)
    return chosen is not None and chosen.partition(":")[0] == "cpu"


def untouched_reason(namespace: dict[str, Any]) -> str:
    """The likely reason why a cell left its GPU alone, from what its names hold."""
    frameworks = loaded_frameworks()
    if not frameworks:
        return "the cell uses no framework that can use a GPU"
    for name, value in namespace.items():
        if not name.startswith("_") and is_cpu_choice(value):
            return f"`{name}` is cpu"
    for name, value in namespace.items():
        for attribute in ("device", "_device"):
            holder = getattr(value, "__dict__", None)
            if (
                isinstance(holder, dict)
                and not isinstance(value, types.ModuleType)
                and is_cpu_choice(holder.get(attribute))
            ):
                return f"`{name}.{attribute}` is cpu"
    return next((reason for framework in frameworks if (reason := framework.untouched_reason(namespace))), "")
