"""The magics without ``%load_ext``: IPython runs a file of ours when a kernel starts, and that calls :func:`load`.

The file is in ``etc/ipython/startup`` of the environment that the package is installed in, so kernels of other
environments never see it. A later ``%load_ext jupyter_gpu_release`` finds the magics there and says nothing.
"""

from __future__ import annotations

import os
from typing import Any

#: 0 switches it off (``RELEASE["automatic"]`` in the table of settings, which a kernel does not load at its start)
VARIABLE = "JUPYTER_GPU_AUTOMATIC"


def load(shell: Any) -> None:
    """Load the magics into a Jupyter kernel's ``shell``; IPython in a terminal is left alone."""
    if getattr(shell, "kernel", None) is None or not is_wanted(shell):
        return
    from .extension import load as load_extension

    load_extension(shell)


def is_wanted(shell: Any) -> bool:
    """Tell if neither the environment nor IPython's configuration says no."""
    configured = getattr(shell, "config", {}).get("GpuRelease", {}).get("automatic", True)
    return os.environ.get(VARIABLE, "1") != "0" and configured is not False
