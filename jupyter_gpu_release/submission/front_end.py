"""The front end of this process as libraries see it; a cell's process elsewhere shows them the same."""

from __future__ import annotations

import os
import shutil
import sys

from ..host.environment import FRONT_END
from ..protocol.cell import FrontEnd


def find_front_end(request: str = "") -> FrontEnd:
    """``request``: id of the message that runs the cell, where there is one."""
    environment = {name: os.environ[name] for name in FRONT_END if name in os.environ}
    size = shutil.get_terminal_size((0, 0))
    if size.columns and size.lines:  # of a terminal that the other process does not have
        environment |= {"COLUMNS": str(size.columns), "LINES": str(size.lines)}
    return FrontEnd(request, _is_terminal(), environment, list(FRONT_END))


def _is_terminal() -> bool:
    try:
        return bool(sys.stdout.isatty())
    except (AttributeError, ValueError, OSError):  # none, closed, or the user's own
        return False
