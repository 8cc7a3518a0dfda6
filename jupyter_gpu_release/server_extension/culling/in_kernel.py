"""Runs inside users' kernels: its text is sent there, so it imports nothing but the standard library at the top.

Asks GPU libraries that the kernel has already imported to let go of memory, and saves variables.
"""

import fnmatch
import gc
import json
import os
import pickle
import sys
import time
import types


def in_time(action: object, deadline_s: float, *arguments: object) -> str:
    """Do it, unless the kernel comes to it too late. The clock is the machine's, the server's as well as ours."""
    if time.monotonic() > deadline_s:
        return json.dumps({"late": True})
    return action(*arguments)  # type: ignore[operator,no-any-return]


def let_go(namespace: dict, patterns: list) -> str:  # type: ignore[type-arg]
    """Free what nothing refers to; move variables named by ``patterns`` to the host first. Answers JSON."""
    notes: list[str] = []
    before = _device_bytes()
    moved = [name for name in sorted(namespace) if _is_named(name, patterns) and _moved(namespace, name, notes)]
    gc.collect()
    libraries = [name for name, free in _LIBRARIES.items() if name in sys.modules and _tried(name, free, notes)]
    freed = max(0, before - _device_bytes())
    return json.dumps({"freed_bytes": freed, "libraries": libraries, "moved": moved, "notes": notes})


def save(namespace: dict, path: str) -> str:  # type: ignore[type-arg]
    """Write the variables to ``path`` (0600), one after the other, so that one that cannot be saved costs no other."""
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    saved: dict[str, bytes] = {}
    notes: list[str] = []
    for name, value in sorted(namespace.items()):
        if name.startswith("_") or name in ("In", "Out", "exit", "quit", "get_ipython", "open"):
            continue
        if isinstance(value, types.ModuleType):
            continue
        try:
            saved[name] = pickler.dumps(value)
        except Exception as error:  # noqa: BLE001 (any object may refuse in any way)
            notes.append(f"{name}: {error}")
    temporary = f"{path}.{os.getpid()}.part"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        pickle.dump(saved, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return json.dumps({"saved": sorted(saved), "notes": notes})


def _is_named(name: str, patterns: list) -> bool:  # type: ignore[type-arg]
    return not name.startswith("_") and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _moved(namespace: dict, name: str, notes: list) -> bool:  # type: ignore[type-arg]
    torch = sys.modules.get("torch")
    value = namespace[name]
    try:
        if torch is not None and isinstance(value, torch.nn.Module):
            if not any(_on_device(part) for part in (*value.parameters(), *value.buffers())):
                return False
            value.to("cpu")  # in place, gradients with it: optimisers still refer to the same parameters
            return True
        if torch is not None and isinstance(value, torch.Tensor) and _on_device(value):
            gradient = value.grad if value.is_leaf else None
            value.data = value.data.cpu()
            if gradient is not None:
                value.grad = gradient.cpu()
            return True
    except Exception as error:  # noqa: BLE001 (it stays where it is)
        notes.append(f"{name} stays on its device: {error}")
    return False


def _on_device(tensor: object) -> bool:
    return tensor.device.type == "cuda"  # type: ignore[attr-defined,no-any-return]


def _device_bytes() -> int:
    total = 0
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    try:
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            total += sum(torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count()))
        if cupy is not None:
            total += cupy.get_default_memory_pool().total_bytes()
    except (AttributeError, RuntimeError):  # a figure, no more; a library may be half imported
        return 0
    return int(total)


def _free_torch() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.ipc_collect()


def _free_jax() -> None:
    sys.modules["jax"].clear_caches()
    gc.collect()


def _free_cupy() -> None:
    cupy = sys.modules["cupy"]
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


_LIBRARIES = {"torch": _free_torch, "jax": _free_jax, "cupy": _free_cupy}


def _tried(name: str, free: object, notes: list) -> bool:  # type: ignore[type-arg]
    try:
        free()  # type: ignore[operator]
    except (AttributeError, RuntimeError) as error:  # the next library may do better
        notes.append(f"{name}: {error}")
        return False
    return True
