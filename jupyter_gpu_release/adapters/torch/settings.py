"""Settings for computing and printing, and the number of threads."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable
from typing import Any

import psutil

from ..adapter import LibrarySettings, Values


def _read(torch: Any) -> Values:
    backends, cudnn = torch.backends, torch.backends.cudnn
    printed = vars(sys.modules["torch._tensor_str"].PRINT_OPTS)
    return {
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "device": _device(torch),
        "deterministic": torch.get_deterministic_debug_mode(),
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "threads": torch.get_num_threads(),
        "warnings": torch.is_warn_always_enabled(),
        "sharing": torch.multiprocessing.get_sharing_strategy(),
        **({"mkldnn": backends.mkldnn.enabled} if backends.mkldnn.is_available() else {}),
        **{name: getattr(cudnn, name.partition(".")[2]) for name in _CUDNN},
        **{name: is_on() for name, ask in _ATTENTION.items() if (is_on := getattr(backends.cuda, ask, None))},
        **_precisions(torch),
        **{f"print.{name}": value for name, value in printed.items()},
    }


def _precisions(torch: Any) -> Values:
    """Precision of products. Torch has two ways to set it, and refuses to read by the old one what the new one set."""
    found: Values = {}
    old = ["tf32.cudnn"]
    try:
        found["matmul"] = torch.get_float32_matmul_precision()
    except RuntimeError:
        found = _by_new_way(torch, _PRECISIONS)
        old.append("tf32.cuda.matmul")
    for name in old:
        try:
            found[name] = _backend(torch, name).allow_tf32
        except RuntimeError:
            found |= _by_new_way(torch, _IN_PLACE_OF[name])
    return found


def _by_new_way(torch: Any, names: Iterable[str]) -> Values:
    return {name: _backend(torch, name).fp32_precision for name in names}


def _backend(torch: Any, name: str) -> Any:
    """The part of ``torch.backends`` with this setting."""
    return functools.reduce(getattr, name.split(".")[1:], torch.backends)


#: the wider ones first: what they set holds for the others
_PRECISIONS = dict.fromkeys(
    ["precision"] + [f"precision.mkldnn{part}" for part in ("", ".matmul", ".conv", ".rnn")], "none"
)
#: settings of the old way, and those of the new one that are read where torch refuses to tell them
_IN_PLACE_OF = {
    "tf32.cuda.matmul": {"precision.cuda.matmul": "none"},
    "tf32.cudnn": {"precision.cudnn": "none", "precision.cudnn.conv": "tf32", "precision.cudnn.rnn": "tf32"},
}
#: kinds of attention, all of which are on, and the function that tells
_ATTENTION = {f"attention.{kind}": f"{kind}_sdp_enabled" for kind in ("flash", "mem_efficient", "math", "cudnn")}

#: a default device that this process has not, as it arrived, and what was set here then
_elsewhere: tuple[str, Any] | None = None


def _device_context(torch: Any) -> Any:
    """The object that ``set_default_device`` makes anew at each call. (``get_default_device`` may wake the GPU.)"""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def _device(torch: Any) -> str:
    global _elsewhere
    context = _device_context(torch)
    if _elsewhere is not None and _elsewhere[1] is context:
        return _elsewhere[0]
    _elsewhere = None  # somebody has set another one here since
    return "cpu" if context is None else str(context.device)


def _set_device(torch: Any, device: str) -> None:
    """In a process without a GPU it stays as it is, and the next GPU cell gets it."""
    global _elsewhere
    is_away = device.startswith("cuda") and not torch.cuda.is_available()
    _elsewhere = (device, _device_context(torch)) if is_away else None
    if not is_away:
        torch.set_default_device(None if device == "cpu" else device)


_CUDNN = {"cudnn.benchmark": False, "cudnn.deterministic": False, "cudnn.enabled": True}
_USUAL = {
    "dtype": "float32",
    "device": "cpu",
    "matmul": "highest",
    "tf32.cudnn": True,
    "tf32.cuda.matmul": False,
    **_PRECISIONS,
    **_IN_PLACE_OF["tf32.cuda.matmul"],
    **_IN_PLACE_OF["tf32.cudnn"],
    "deterministic": 0,
    "grad": True,
    "anomaly": False,
    "warnings": False,
    "sharing": "file_descriptor",
    "mkldnn": True,
    **_CUDNN,
    **dict.fromkeys(_ATTENTION, True),
    "print.precision": 4,
    "print.threshold": 1000,
    "print.edgeitems": 3,
    "print.linewidth": 80,
    "print.sci_mode": None,
}


@functools.cache
def _cores() -> int | None:
    count: int | None = psutil.cpu_count(logical=False)
    return count


def _usual(torch: Any) -> Values:
    """The usual number, which depends on the machine: as many threads as it has cores."""
    now = torch.get_num_threads()
    told = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
    cores = {len(os.sched_getaffinity(0)), _cores(), *(int(text) for text in told if text.isdigit())}
    return {**_USUAL, "threads": now if now in cores else None}


def _write(torch: Any, name: str, value: Any) -> None:
    kind, _, rest = name.partition(".")
    if kind == "dtype":
        torch.set_default_dtype(getattr(torch, value))
    elif kind == "device":
        _set_device(torch, value)
    elif kind == "matmul":
        torch.set_float32_matmul_precision(value)
    elif kind == "deterministic":
        torch.set_deterministic_debug_mode(value)
    elif kind == "grad":
        torch.set_grad_enabled(value)
    elif kind == "threads":
        torch.set_num_threads(value)
    elif kind == "anomaly":
        torch.autograd.set_detect_anomaly(value)
    elif kind == "warnings":
        torch.set_warn_always(value)
    elif kind == "sharing":
        torch.multiprocessing.set_sharing_strategy(value)
    elif kind == "mkldnn":
        torch.backends.mkldnn.enabled = value
    elif kind == "tf32":
        _backend(torch, name).allow_tf32 = value
    elif kind == "attention":
        getattr(torch.backends.cuda, f"enable_{rest}_sdp")(value)
    elif kind == "precision":
        _backend(torch, name).fp32_precision = value
    else:
        setattr(torch.backends.cudnn if kind == "cudnn" else sys.modules["torch._tensor_str"].PRINT_OPTS, rest, value)


_HOOKS = "registered"


def _read_hooks(module: Any) -> Values:
    """The number of hooks that were registered: a module's hooks are told apart by the number that each got."""
    return {_HOOKS: module.RemovableHandle.next_id}


def _write_hooks(module: Any, _name: str, value: Any) -> None:
    module.RemovableHandle.next_id = max(module.RemovableHandle.next_id, value)


#: functions that set them or what is the process's own, and attributes
CALLS = (
    *(f"cudnn.{name}" for name in ("allow_tf32", "benchmark", "deterministic", "enabled", "fp32_precision")),
    *(f"mkldnn.{name}" for name in ("enabled", "fp32_precision")),
    "backends.fp32_precision",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "cuda.set_device",
    "set_anomaly_enabled",
    "set_default_device",
    "set_default_dtype",
    "set_default_tensor_type",
    "set_detect_anomaly",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "set_num_threads",
    "set_per_process_memory_fraction",
    "set_printoptions",
    "set_sharing_strategy",
    "set_warn_always",
    "use_deterministic_algorithms",
)
ALL = (
    LibrarySettings("torch", _read, _usual, _write, follow_threads=True),
    LibrarySettings("torch.utils.hooks", _read_hooks, lambda _: {_HOOKS: 0}, _write_hooks, that_count=False),
)
