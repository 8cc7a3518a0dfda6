"""``jupyter gpu mcp``: tools for an assistant, on standard input and output."""

from __future__ import annotations

import argparse

from ..errors import MissingPackageError
from .connect import open_gateway


def run(_arguments: argparse.Namespace) -> int:
    """Serve until the assistant closes standard input."""
    try:
        from ..assistant.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise MissingPackageError(
            "`jupyter gpu mcp` needs the package mcp (version 2), which is not installed here",
            hint="pip install 'jupyter-gpu-release[mcp]'",
        ) from None
    serve(open_gateway)
    return 0
