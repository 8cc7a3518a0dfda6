"""A look at what is around this node: ports and names of the others, and the frameworks that are installed here."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from ...checks.frameworks import dotted, installed_frameworks
from ...checks.network import PORT_S, answer_of, look_up
from ...host.process_control import least_limit
from ...host.threads import DaemonThreads
from ...protocol.node import NameLookup, PortTry, ProbeOrder, ProbeReport

T = TypeVar("T")
#: connections that are tried at once: some that are silent keep the others waiting only a little
_AT_ONCE = 64
#: for all ports, for all names, for reading the metadata of packages
_ALL_S = 8.0
_NO_ANSWER = "no name server has answered in time"
_threads = DaemonThreads(_AT_ONCE, "jgr-probe")


async def probe(order: ProbeOrder) -> ProbeReport:
    """Try everything at once; what takes too long is reported as it is by then."""
    frameworks = asyncio.create_task(_in_thread(_frameworks, dict[str, str]()))
    names = asyncio.create_task(_look_up(order.names))
    return ProbeReport(
        await _try_ports(order.ports),
        await names,
        await frameworks,
        shared_bytes=_shared_bytes(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],  # cells have the agent's limits
        processes=most_processes(),
    )


async def _try_ports(ports: Sequence[PortTry]) -> list[PortTry]:
    """Each port once; what there was no time for is left out."""
    gate = asyncio.Semaphore(_AT_ONCE)
    tries = [asyncio.create_task(_try_port(port, gate)) for port in ports]
    if tries:
        await asyncio.wait(tries, timeout=_ALL_S)
    for late in (one for one in tries if not one.done()):
        late.cancel()
    await asyncio.gather(*tries, return_exceptions=True)
    return [one.result() for one in tries if not one.cancelled()]


async def _try_port(port: PortTry, gate: asyncio.Semaphore) -> PortTry:
    async with gate:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(port.address, port.port), PORT_S)
        except OSError as error:
            answer, reason = answer_of(error)
            return msgspec.structs.replace(port, answer=answer, reason=reason)
        writer.close()
    return msgspec.structs.replace(port, answer="open")


async def _look_up(names: Sequence[NameLookup]) -> list[NameLookup]:
    late = [msgspec.structs.replace(name, problem=_NO_ANSWER) for name in names]
    looked = (_in_thread(partial(look_up, name), instead) for name, instead in zip(names, late, strict=True))
    return list(await asyncio.gather(*looked))


def _shared_bytes() -> int | None:
    try:
        return shutil.disk_usage("/dev/shm").total
    except OSError:
        return None


def most_processes(root: Path = Path("/")) -> int | None:
    """The least of this process's limits on processes and threads; None: there is none. ``ulimit -u`` binds no root."""
    own = resource.getrlimit(resource.RLIMIT_NPROC)[0] if os.getuid() else resource.RLIM_INFINITY
    most = min(math.inf if own == resource.RLIM_INFINITY else own, least_limit("pids", root))
    return None if most == math.inf else int(most)


def _frameworks() -> dict[str, str]:
    return {name: dotted(cuda) for name, cuda in installed_frameworks()}


async def _in_thread(work: Callable[[], T], otherwise: T) -> T:
    """The result of ``work``; ``otherwise`` when that takes too long, or cannot be read."""
    asked = _threads.begin(work)
    asked.add_done_callback(asyncio.Future.exception)  # that of a late one is nobody's
    await asyncio.wait([asked], timeout=_ALL_S)
    return asked.result() if asked.done() and asked.exception() is None else otherwise
