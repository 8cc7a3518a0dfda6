"""Ray's worker processes that tell the accelerators of leases: each node keeps one, since a new one takes a second.

Ray ends idle workers every 200 ms once the driver that made the gateway has ended, and where all CPUs are in use. It
asks them first, and a worker that owns an object declines (``CoreWorker::HandleExit``; it is not forced while the
detached actor whose tasks it runs lives). So the first worker of a node owns one for as long as the node's agent lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...host.background import BackgroundWork
from ...protocol.node import AttemptId, GrantNotice, grant_socket, lease_worker_socket
from ...protocol.wire import encode
from .ray_calls import FAULTS

#: while Ray asks the worker whether it can end (a millisecond of 200) it starts another one for a lease, and gives it
#: the one that is there only when that has done something else meanwhile: after so long without an answer it gets that
_NUDGES_S = (0.03, 0.06, 0.12, 0.24)


#: name of a thread in the worker that stays
THREAD = "jgr-stays"


class _WorkerHold:
    """Keeps this process in Ray's pool for as long as the node's agent wants it there."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def begin(self, path: str) -> None:
        """Own an object until the agent that listens at ``path`` says no or is gone; never blocks."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._until_let_go, args=(path, ray.put(None)), daemon=True)
            self._thread.start()

    def _until_let_go(self, path: str, owned: Any) -> None:
        """``owned`` lives as long as this call. Whoever wonders why the worker stays finds the thread's name."""
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(THREAD, encoding="ascii")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.connect(path)
            line.recv(1)


_stay = _WorkerHold()


def _tell_accelerator_ids(attempt: str = "", runtime: str = "", node: str = "") -> list[str]:
    """Runs inside a bundle and does nothing but tell which accelerators Ray gave it.

    The node's agent hears it at once, on this node; the gateway a few hops later.
    """
    by_kind: dict[str, list[str]] = ray.get_runtime_context().get_accelerator_ids()
    ids = [str(i) for i in by_kind.get("GPU", [])]
    if attempt:
        # only sooner than the gateway's own word, which comes in any case: an agent that is busy is not waited for
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sock:
            sock.sendto(encode(GrantNotice(AttemptId.named(attempt), ids)), grant_socket(runtime, node))
    if runtime:
        _stay.begin(lease_worker_socket(runtime, node))
    return ids


# max_calls=0: the worker stays for the next lease (Ray's default for GPU tasks is a new process each)
accelerator_ids = ray.remote(num_gpus=0, num_cpus=0, max_calls=0, max_retries=0)(_tell_accelerator_ids)


async def warm_worker(node: str, runtime: str = "") -> None:
    """Have a worker on ``node`` do something, so that there is one, and Ray sees that it is free.

    ``runtime``: the folder of the agents' sockets, where it is to stay. While one is on its way there is no other: Ray
    starts a process for each, and on a busy machine ever more of them, which keep each other from starting.
    """
    if node in _warming:
        return
    _warming.add(node)
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    try:
        with contextlib.suppress(*FAULTS):
            await accelerator_ids.options(scheduling_strategy=strategy).remote("", runtime, node)
    finally:
        _warming.discard(node)


async def nudge_workers(nodes: list[str], answers: asyncio.Future[Any]) -> None:
    """Help tasks on ``nodes`` to the workers that are there, until ``answers`` is done or it has been tried enough."""
    for pause_s in _NUDGES_S:
        if (await asyncio.wait({answers}, timeout=pause_s))[0]:
            return
        for node in nodes:
            _nudging.spawn(warm_worker(node))


_nudging = BackgroundWork()
#: nodes with one on its way
_warming: set[str] = set()
