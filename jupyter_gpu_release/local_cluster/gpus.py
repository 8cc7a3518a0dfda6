"""The NVIDIA GPUs of this machine, as the driver tells."""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec
import pynvml


class Hardware(msgspec.Struct, frozen=True):
    """Facts that NVML gives. ``problem``: why it gives none."""

    gpus: list[str]
    driver: str = ""
    #: highest CUDA version that the driver supports, as (major, minor)
    driver_cuda: tuple[int, int] = (0, 0)
    problem: str = ""


def read_hardware() -> Hardware:
    """Ask NVML; a machine without NVIDIA's driver gives no GPUs and the reason."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Hardware([], problem=str(error))
    try:
        return _read()
    except pynvml.NVMLError as error:
        return Hardware([], problem=str(error))
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def usable_gpus(hardware: Hardware) -> int:
    """Number of the GPUs that this user's ``CUDA_VISIBLE_DEVICES`` leaves."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(hardware.gpus)
    named = [entry for entry in visible.split(",") if entry.strip() and entry.strip() not in ("-1", "NoDevFiles")]
    if hardware.gpus and all(entry.strip().startswith("MIG-") for entry in named):  # several of one GPU
        return len(named)
    return min(len(hardware.gpus), len(named))


def _read() -> Hardware:
    names = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        names.append(_text(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))))
    cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    return Hardware(names, _text(pynvml.nvmlSystemGetDriverVersion()), (cuda // 1000, cuda % 1000 // 10))


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
