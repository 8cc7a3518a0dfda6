"""Questions of the rank to the frameworks that are loaded; it imports none."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import Any

from ...serialization.process_state import random_states

_DEVICE_WORD = re.compile(r"(?:cuda|gpu|mps|xpu)(?::\d+)?", re.IGNORECASE)
_FRAMEWORKS = ("torch", "jax", "tensorflow", "cupy")


def loaded_frameworks() -> list[str]:
    """Frameworks that can use a GPU and are imported here."""
    return [name for name in _FRAMEWORKS if name in sys.modules]


def seed_generators(states: random_states.Rng, *, has_gpu: bool) -> None:
    """Random generators: as the notebook has them, else fresh (ranks are forks of one process)."""
    random_states.seed_fresh(random_states.restore_rng(states) or states)
    if has_gpu and hasattr(sys.modules.get("torch"), "cuda"):
        random_states.seed_devices()


def gang_hints(error: str, ranks: int, gpus: int) -> list[str]:
    """Explain PyTorch's own words in a cell that is one process with ``gpus`` GPUs."""
    if ranks > 1 or "environment variable RANK expected" not in error:
        return []
    wanted = max(gpus, 2)
    text = "init_process_group() is for several processes, and this cell ran as one"
    words = f"{text}: --gpus {wanted} --ranks {wanted} runs it as {wanted}, with RANK, WORLD_SIZE and MASTER_ADDR set"
    return [words + (" (--ranks 1 sets them for one)" if gpus < 2 else "")]


def has_touched_gpu() -> bool:
    """Tell if a framework has opened the GPU in this process."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        return True
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        with contextlib.suppress(Exception):
            return bool(cupy.get_default_memory_pool().total_bytes())
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and any(name != "cpu" for name in getattr(bridge, "_backends", {}))


def gpu_is_busy() -> bool:
    """Tell if reading the GPU's memory could wait, for ever if another rank does not come to a collective."""
    torch = sys.modules.get("torch")
    if [name for name in loaded_frameworks() if name != "torch"] and has_touched_gpu():
        return True  # these cannot be asked
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return False
    try:
        return not all(torch.cuda.current_stream(n).query() for n in range(torch.cuda.device_count()))
    except RuntimeError:  # an error that the device met before
        return True


def is_device_word(name: str, value: Any) -> bool:
    """Tell if a name holds a GPU's name as text (``device = "cuda"``)."""
    return type(value) is str and "dev" in name.lower() and _DEVICE_WORD.fullmatch(value) is not None


def is_gpu_device(value: Any) -> bool:
    """Tell if a value is a ``torch.device`` of a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) is torch.device and value.type not in ("cpu", "meta")


def is_cpu_choice(value: Any) -> bool:
    """Tell if a value chooses the CPU: ``torch.device("cpu")`` or the word."""
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is torch.device:
        return bool(value.type == "cpu")
    return type(value) is str and value.lower() == "cpu"


def untouched_reason(namespace: dict[str, Any]) -> str:
    """The likely reason why a cell left its GPU alone, from what its names hold."""
    if not loaded_frameworks():
        return "the cell uses no framework that can use a GPU"
    for name, value in namespace.items():
        if not name.startswith("_") and is_cpu_choice(value):
            return f"`{name}` is cpu"
    for name, value in namespace.items():
        for attribute in ("device", "_device"):
            holder = getattr(value, "__dict__", None)
            if isinstance(holder, dict) and not isinstance(value, type(sys)) and is_cpu_choice(holder.get(attribute)):
                return f"`{name}.{attribute}` is cpu"
    return _torch_reason(namespace)


def _torch_reason(namespace: dict[str, Any]) -> str:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return ""
    if not torch.cuda.is_available():
        return "torch sees no GPU here (its build or the driver)"
    for name, value in namespace.items():
        if isinstance(value, torch.nn.Module) and not name.startswith("_"):
            first = next(iter(value.parameters()), None)
            if first is not None and first.device.type == "cpu":
                return f"`{name}` was never moved to the GPU (`{name}.to('cuda')`)"
    return "nothing was moved to the GPU"
