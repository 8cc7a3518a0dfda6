"""The installer (uv): where it is."""

from __future__ import annotations

from ..errors import ClusterError


def find_installer() -> str:
    """Path of uv; raises :class:`ClusterError` where it is not installed."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        raise ClusterError(
            "this node cannot build environments: uv is not installed in the cluster's Python",
            hint="install it there: `pip install 'jupyter-gpu-release[cluster]'`",
        ) from None
