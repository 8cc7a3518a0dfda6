"""The raylet's end is its node's: Ray alone does not see to that (measured: 75 s later the agent still lived)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import psutil

from . import process
from .fork_servers import ForkServers
from .keeping import Keeping

_END_S = 2.0


def watch(on_gone: Callable[[], None]) -> None:
    """Have ``on_gone`` called when the raylet, this process's parent, is gone."""
    asyncio.get_event_loop().add_reader(os.pidfd_open(os.getppid()), on_gone)


def end_with_it(node: str, servers: ForkServers, keeping: Keeping) -> None:
    """End everything of this node but what keeps results; does not return."""
    deadline = time.monotonic() + _END_S
    spilling = frozenset(keeping.leave())
    servers.kill_all()  # supervisors get SIGTERM by it, end their descendants, then themselves
    children = psutil.Process().children(recursive=True)
    psutil.wait_procs(children, timeout=max(0.0, deadline - time.monotonic()))
    process.end_marked(process.NODE_MARKER, node, spare=spilling)
    os._exit(1)
