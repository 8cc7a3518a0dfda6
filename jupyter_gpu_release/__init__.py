"""Notebook cells that take GPUs from the team's Ray cluster and give them back after the last statement.

``%load_ext jupyter_gpu_release`` registers the magics; nothing heavy (no Ray, no torch) is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

run_dir: Path

#: part of the fixed interface, built in later milestones
_LATER = frozenset({"launch", "gpu", "load", "sweep", "checkpoint", "restore", "ranks", "publish"})


def __getattr__(name: str) -> object:
    """``run_dir``: the folder (also ``$GPU_RUN_DIR``) whose files are results of the running GPU cell.

    ``track(path)``: record a data file that the cell reads.
    """
    if name == "run_dir":
        import os
        from pathlib import Path

        folder = os.environ.get("GPU_RUN_DIR")
        if not folder:
            raise AttributeError("run_dir exists inside a GPU cell only (%%gpu_train)")
        return Path(folder)
    if name == "track":
        from .storage.tracking import track

        return track
    if name in _LATER:
        raise AttributeError(f"jupyter_gpu_release.{name} is not built yet (see CHANGELOG.md)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register ``%%gpu_train`` and its companions in this shell (called by ``%load_ext``)."""
    from .kernel.extension import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics away again and close the connection to the gateway (called by ``%unload_ext``)."""
    from .kernel.extension import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, object]]:
    """Where the Jupyter server finds its extension (enabled by ``jupyter_server_config.d``)."""
    from .server.app import GpuReleaseExtension

    return [{"module": "jupyter_gpu_release.server.app", "app": GpuReleaseExtension}]
