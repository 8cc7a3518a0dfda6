"""Settings of the gateway that an operator gives through the environment of ``jupyter gpu start``."""

from __future__ import annotations

import os

from ..core.resources import parse_seconds
from ..errors import OptionError

_GRACE = "JUPYTER_GPU_RECONNECT_GRACE_S"
_PRELOAD = "JUPYTER_GPU_PRELOAD"


def preload_from_environment() -> list[str]:
    """``JUPYTER_GPU_PRELOAD=torch,numpy``: libraries that the fork servers import; empty: the default list."""
    names = [name.strip() for name in os.environ.get(_PRELOAD, "").split(",") if name.strip()]
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise OptionError(
                f"{_PRELOAD}: {name} is not the name of a module", mend="write it like torch,numpy,pandas"
            )
    return names


def grace_from_environment() -> float:
    """``JUPYTER_GPU_RECONNECT_GRACE_S``: how long a closed kernel's runs wait for it to come back (30 s)."""
    return parse_seconds(os.environ.get(_GRACE) or "30", option=_GRACE)
