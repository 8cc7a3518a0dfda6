"""The ids under which Ray gives a node's GPUs: the entries of its raylet's ``CUDA_VISIBLE_DEVICES``, else numbers."""

from __future__ import annotations

import psutil


def gpu_ids(count: int, visible: str | None) -> list[str]:
    """Ids of the ``count`` GPUs that Ray counts, where its raylet was started with ``visible`` (None: not set).

    Ray gives the entries as they are written, from the first on: ``2``, ``GPU-8f3e…``, ``MIG-5a1b…``.
    """
    return [str(index) for index in range(count)] if visible is None else visible.split(",")[:count]


def visible_to(raylet: int) -> str | None:
    """The raylet's ``CUDA_VISIBLE_DEVICES``. Ray changes that of its workers."""
    try:
        environment: dict[str, str] = psutil.Process(raylet).environ()
    except psutil.Error:
        return None
    return environment.get("CUDA_VISIBLE_DEVICES")
