"""Notebook cells that take GPUs from the team's Ray cluster and give them back after the last statement.

``%load_ext jupyter_gpu_release`` registers the magics; nothing heavy (no Ray, no torch) is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register ``%%gpu_train`` and its companions in this shell (called by ``%load_ext``)."""
    from .kernel.extension import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics away again and close the connection to the gateway (called by ``%unload_ext``)."""
    from .kernel.extension import unload

    unload(shell)
