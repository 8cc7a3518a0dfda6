"""How this node is called, and how others reach it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Where:
    """``address``: the node's IP address as its cluster knows it; this machine alone: the loopback."""

    host: str = field(default_factory=socket.gethostname)
    address: str = "127.0.0.1"
    #: a local folder for marks of runs that have begun; they tell the next agent of this node. Empty: there are none
    marks: str = ""
