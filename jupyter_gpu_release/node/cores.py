"""The cores and threads of a run that asked for ``--cpus``."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys

from . import process

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_MAX_THREADS")
#: names that this process holds for its cores, until it and all that it forked are gone
_held: list[socket.socket] = []


def use_threads(count: int, *, quickly: bool = False) -> None:
    """Have frameworks, here and in processes that the cell starts, use this many threads.

    ``quickly``: not those libraries of numpy and scipy that are loaded already, which takes 25 ms.
    """
    for name in _THREAD_VARIABLES:
        os.environ.setdefault(name, str(count))
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(count)
    if "threadpoolctl" in sys.modules and not quickly:  # what is loaded does not read the environment again
        with contextlib.suppress(Exception):
            sys.modules["threadpoolctl"].threadpool_limits(count)


def keep_to(cpus: float) -> set[int]:
    """Confine this process to as many cores as were reserved for it, to its own while there are enough.

    A core is taken by a name that only one process of the cluster's node can have; the system gives it back with the
    last process that has it.
    """
    cores = sorted(os.sched_getaffinity(0))
    wanted = min(len(cores), math.ceil(cpus))
    taken = [core for core in cores if len(_held) < wanted and _take(core)]
    shared = [core for core in cores if core not in taken][: wanted - len(taken)]
    chosen = {*taken, *shared}
    os.sched_setaffinity(0, chosen)
    return chosen


def _take(core: int) -> bool:
    cluster = os.environ.get(process.CLUSTER_MARKER, "")
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0jgr-core-{cluster}-{core}")
    except OSError:
        name.close()
        return False
    _held.append(name)
    return True
