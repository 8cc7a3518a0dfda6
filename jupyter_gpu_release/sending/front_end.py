"""What this process's front end is to libraries; a cell's process elsewhere shows them the same."""

from __future__ import annotations

import os
import shutil
import sys

from ..core.messages import FrontEnd

#: environment variables by which libraries decide how they draw
_ASKED = (
    "TERM", "COLORTERM", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "JUPYTER_COLUMNS",
    "JUPYTER_LINES", "PAGER", "GIT_PAGER", "MANPAGER", "JPY_PARENT_PID", "JPY_SESSION_NAME", "VSCODE_PID",
    "VSCODE_CWD", "DATABRICKS_RUNTIME_VERSION", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE",
)  # fmt: skip


def find_front_end(request: str = "") -> FrontEnd:
    """``request``: id of the message that runs the cell, where there is one."""
    environment = {name: os.environ[name] for name in _ASKED if name in os.environ}
    size = shutil.get_terminal_size((0, 0))
    if size.columns and size.lines:  # of a terminal that the other process does not have
        environment |= {"COLUMNS": str(size.columns), "LINES": str(size.lines)}
    return FrontEnd(request, _is_terminal(), environment, list(_ASKED))


def _is_terminal() -> bool:
    try:
        return bool(sys.stdout.isatty())
    except (AttributeError, ValueError, OSError):  # none, closed, or the user's own
        return False
