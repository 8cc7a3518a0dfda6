"""Kueue's scalability test (its ``test/performance/scheduler``): 30 queues, 15,000 runs, execution mimicked.

Each queue sends 350 small, 100 medium and 50 large runs, at their own pace. Published for Kueue: 351 s in all; mean
time to admission 215.5 s (small), 76.8 s (medium), 16.5 s (large); the work alone needs 66 s.
"""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from jupyter_gpu_release.client.websocket import session_url
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.protocol.session import (
    PROTOCOL,
    Accepted,
    GatewayMessage,
    Heartbeat,
    Hello,
    Refused,
    Submit,
    Update,
)
from jupyter_gpu_release.protocol.states import RunState, new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode

COHORTS, QUEUES_EACH, GUARANTEED, MOST = 5, 6, 20, 120
_HEARTBEAT_S = 2.0
UNITS = COHORTS * QUEUES_EACH * GUARANTEED


def queues_file() -> str:
    """The cohorts, and queues below them: each has its quota guaranteed, and may borrow up to the cohort's."""
    lines = ["schema_version: 1", "queues:"]
    for cohort in range(COHORTS):
        whole = QUEUES_EACH * GUARANTEED
        lines.append(f"  - {{name: cohort-{cohort}, guaranteed: {whole}, max: {whole}, priority_ceiling: 200}}")
    for number in range(COHORTS * QUEUES_EACH):
        lines.append(
            f"  - {{name: queue-{number}, parent: cohort-{number % COHORTS}, guaranteed: {GUARANTEED}, max: {MOST},"
            " priority_ceiling: 200}"
        )
    lines.append("default_queue: queue-0")
    return "\n".join(lines)


@dataclass(frozen=True)
class Kind:
    """Runs of one size, as every queue sends them."""

    name: str
    units: int
    count: int
    #: length of a run, and time between two submissions
    run_s: float
    every_s: float
    priority: str


KINDS = (
    Kind("small", 1, 350, 0.2, 0.1, "50"),
    Kind("medium", 5, 100, 0.5, 0.5, "100"),
    Kind("large", 20, 50, 1.0, 1.2, "200"),
)


@dataclass
class Measured:
    """The figures of one pass."""

    wall_s: float = 0.0
    #: seconds from the client's send to the grant, by kind
    admission_s: dict[str, list[float]] = field(default_factory=lambda: {kind.name: [] for kind in KINDS})
    unit_seconds: float = 0.0
    runs: int = 0
    driver_cpu_s: float = 0.0

    @property
    def use(self) -> float:
        """Percentage of the quota's time in which runs ran."""
        return 100 * self.unit_seconds / (UNITS * self.wall_s)


class _Queue:
    """One queue's client: a session of its own that sends at the test's pace and follows each run to its end."""

    def __init__(self, number: int, kinds: tuple[Kind, ...], measured: Measured) -> None:
        self._number = number
        self._kinds = kinds
        self._measured = measured
        self._sent: dict[str, tuple[Kind, float]] = {}
        self._granted: set[str] = set()
        self._left = sum(kind.count for kind in kinds)

    async def drive(self, url: str, token: str, begin_s: float) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with connect(
            session_url(url),
            additional_headers=headers,
            compression=None,
            proxy=None,
            ping_interval=None,
            max_size=None,
            max_queue=None,
            open_timeout=60,
        ) as link:
            await link.send(encode(Hello(PROTOCOL, f"queue-{self._number}")))
            await link.recv()
            async with asyncio.TaskGroup() as tasks:
                for kind in self._kinds:
                    tasks.create_task(self._send(link, kind, begin_s))
                living = tasks.create_task(self._live(link))
                while self._left:
                    self._hear(decode(await link.recv(), GatewayMessage))
                living.cancel()

    async def _live(self, link: ClientConnection) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            await link.send(encode(Heartbeat()))

    async def _send(self, link: ClientConnection, kind: Kind, begin_s: float) -> None:
        for number in range(kind.count):
            await asyncio.sleep(max(0.0, begin_s + number * kind.every_s - time.time()))
            run = new_run_id()
            self._sent[run] = (kind, time.time())
            request = RunRequest(
                run,
                f"queue-{self._number}",
                ResourceAsk(gpus=kind.units),
                str(kind.run_s).encode(),
                queue=f"queue-{self._number}",
                priority=kind.priority,
            )
            await link.send(encode(Submit(request)))

    def _hear(self, message: Any) -> None:
        if isinstance(message, Refused):
            raise RuntimeError(f"the gateway refused a run: {message.message}")
        if isinstance(message, Accepted | Update):
            self._note(message.view)

    def _note(self, view: RunView) -> None:
        kind, sent_s = self._sent[view.run]
        if view.granted_at is not None and view.run not in self._granted:
            self._granted.add(view.run)
            self._measured.admission_s[kind.name].append(view.granted_at - sent_s)
        if RunState.of(view.state).is_terminal:
            if view.state != "succeeded":
                raise RuntimeError(f"run {view.run} ended as {view.state}: {view.reason}")
            self._left -= 1
            self._measured.unit_seconds += kind.units * kind.run_s
            self._measured.runs += 1


async def measure(
    url: str, token: str, *, kinds: tuple[Kind, ...] = KINDS, queues: int = COHORTS * QUEUES_EACH
) -> Measured:
    """Drive the gateway at ``url``; returns when every run has ended. Raises when one is refused or fails."""
    measured, began_s = Measured(), time.time()
    cpu_s = _cpu_s()
    await asyncio.gather(*(_Queue(number, kinds, measured).drive(url, token, began_s) for number in range(queues)))
    measured.wall_s = time.time() - began_s
    measured.driver_cpu_s = _cpu_s() - cpu_s
    return measured


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
