"""Kernels that listen at sockets in a folder: a TCP port that is chosen now may be another's when it is bound."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client import KernelManager

_STARTED_S = 180.0


class LocalKernelManager(KernelManager):
    """Its sockets lie in a short folder of its own, as their paths are limited."""

    def __init__(self, **keywords: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="jgr-kernel-"))
        super().__init__(transport="ipc", ip=str(self.folder / "k"), **keywords)


def start_kernel(kernel_name: str, folder: Path, environment: Mapping[str, str] | None = None) -> tuple[Any, Any]:
    """A kernel that answers, and its client; nothing is left of one that does not."""
    manager = LocalKernelManager(kernel_name=kernel_name)
    client = None
    try:
        own = {} if environment is None else {"env": dict(environment)}
        manager.start_kernel(cwd=str(folder), **own)
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=_STARTED_S)
    except BaseException:
        end_kernel(manager, client)
        raise
    return manager, client


def end_kernel(manager: Any, client: Any) -> None:
    """End it, and remove its sockets."""
    if client is not None:
        client.stop_channels()
    if manager.has_kernel:
        manager.shutdown_kernel(now=True)
    manager.cleanup_resources()
    if isinstance(manager, LocalKernelManager):
        shutil.rmtree(manager.folder, ignore_errors=True)
