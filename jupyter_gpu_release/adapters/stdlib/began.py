"""State that is usual for this process, as it began: read when the extension is loaded, before the first cell."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any


def umask() -> dict[str, Any]:
    """To ask the system call is to set it, for all threads: Linux tells it here, too."""
    try:
        _, _, rest = Path("/proc/self/status").read_text().partition("Umask:")
    except OSError:  # not on Linux
        return {}
    return {"umask": rest.split(None, 1)[0]}


UMASK = umask()
#: a process of ours may begin with the collector off
COLLECTOR = {"is on": True, "thresholds": list(gc.get_threshold())}
