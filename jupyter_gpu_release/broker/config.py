"""Reading the gateway's configuration file (the record itself is in ``core.config``, the command line writes it)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..core.config import Deployed, GatewayConfig
from ..errors import ClusterError

__all__ = ["Deployed", "GatewayConfig", "read_config"]


def read_config(path: Path) -> GatewayConfig:
    """Read the JSON file ``path``; raises :class:`ClusterError` naming it when it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=GatewayConfig)
    except OSError as error:
        raise ClusterError(f"cannot read the gateway configuration {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ClusterError(f"{path} is not a gateway configuration: {error}", mend="run `jupyter gpu start`") from error
