"""Records events, reports to the gateway.

Each report is a call, to a gateway on another host through Ray (1–2 ms of each side's cores), so messages close
together share one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from ...errors import StoreError
from ...host.threads import StoreThreads
from ...host.unix_socket_calls import LocalCallError, LocalConnection, answering_for
from ...protocol.events import Event
from ...protocol.node import (
    AgentConfig,
    AttemptId,
    GatewayApi,
    NodeAgentApi,
    NodeInfo,
    NodeMessage,
    NodeReport,
    RunEvents,
    RunPhase,
    calls_socket,
)
from ...protocol.wire import Packed, encode, pack
from ...store.event_log import KEPT_BYTES, EventWriter, events_after, read_events
from ...store.layout import RunPaths
from ..ipc.frames import Output

log = logging.getLogger(__name__)
_BATCH_S = 0.02
_SLOW_STORE_S = 1.0


class Recorder:
    """``tell`` gets the events once they are written, or could not be, or the store has not answered for a second."""

    def __init__(
        self, attempt_id: AttemptId, paths: RunPaths, tell: Callable[[RunEvents], None], threads: StoreThreads
    ) -> None:
        self._attempt_id = attempt_id
        self._paths = paths
        self._tell = tell
        self._threads = threads
        #: a run without output has none
        self._log: EventWriter | None = None
        self._pending: list[Event] = []
        #: told, but not given to the log yet, since the store hangs; and their size
        self._unwritten: list[Event] = []
        self._unwritten_bytes = 0
        self._under_way: asyncio.Future[None] | None = None
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._letting_go: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        #: number of the latest event
        self.count = 0
        #: why output is not recorded just now
        self.problem = ""

    async def go_on_after(self, number: int) -> None:
        """Number what comes on from what earlier attempts said: ``number``, or what the log says, if that is more."""
        self.count = number
        with contextlib.suppress(TimeoutError, StoreError):  # a store that hangs
            last = await asyncio.wait_for(
                self._threads.run(self._last_recorded, number, at=self._paths.folder), _SLOW_STORE_S
            )
            self.count = max(self.count, last)

    def _last_recorded(self, after: int) -> int:
        return max((event.n for event in read_events(self._paths.events, after)), default=after)

    def add_output(self, output: Output, marks: dict[str, object]) -> None:
        """Number one piece of output; ``marks`` say which process of a gang it is of."""
        self.count += 1
        data = {**output.data, **marks} if marks else output.data
        self._pending.append(Event(self.count, output.at_s, output.kind, data))
        self._wake.set()

    async def run_forever(self) -> None:
        """Write in batches until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.write_pending()
            await asyncio.sleep(_BATCH_S)

    async def write_pending(self) -> None:
        """Write what is pending to the log, then report it."""
        async with self._writing:
            batch, self._pending = self._pending, []
            self._hold(batch)
            while self._under_way is not None or self._unwritten or self.problem:
                if not await self._has_written() or not self._unwritten:
                    break
            if batch:
                self._tell(RunEvents(self._attempt_id, batch))

    def _hold(self, batch: list[Event]) -> None:
        if self._under_way is not None:
            self._unwritten_bytes += sum(len(encode(event)) for event in batch)
            if self._unwritten_bytes > KEPT_BYTES:
                return
        self._unwritten.extend(batch)

    async def _has_written(self) -> bool:
        """Give the log what it has not got; False: the store does not answer."""
        is_known_to_hang = self._under_way is not None
        if self._under_way is None:
            events, self._unwritten = self._unwritten, []
            self._under_way = self._threads.begin(
                self._write, events, self._unwritten_bytes > KEPT_BYTES, at=self._paths.folder
            )
            self._unwritten_bytes = 0
        await asyncio.wait([self._under_way], timeout=0.0 if is_known_to_hang else _SLOW_STORE_S)
        if not self._under_way.done():
            if not is_known_to_hang:
                self.problem = "output is not recorded: the store does not answer"
                self._under_way.add_done_callback(lambda _: self._wake.set())
            return False
        self._under_way = None
        return True

    async def write_pending_soon(self) -> None:
        """Write what is pending, but do not wait for a slow store."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.write_pending()), _SLOW_STORE_S)

    async def close_log(self) -> None:
        """Make the log durable and close it; what comes later opens it again. A store that hangs is left to it."""
        async with self._writing:
            if self._under_way is None and self._log is not None and self._log.is_open:
                with contextlib.suppress(StoreError, OSError):
                    await self._threads.run(self._log.close)

    def end_recording(self) -> None:
        """Nothing more comes: what the store has not taken yet is written when it answers."""
        if self._under_way is not None and self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._write_at_last())

    async def _write_at_last(self) -> None:
        while self._under_way is not None:
            await asyncio.wait([self._under_way])
            await self.write_pending()
        await self.close_log()

    def release_log(self) -> None:
        """The store refuses: keep no file of it open, or it could not be unmounted or remounted to mend it."""
        if self._letting_go is None or self._letting_go.done():
            self._letting_go = asyncio.get_running_loop().create_task(self.close_log())

    def events_after(self, after: int) -> list[Event]:
        """Recorded events above ``after``, and those that the store has refused so far."""
        return events_after(self._paths.events, after, self._log)

    def _write(self, batch: list[Event], was_cut: bool) -> None:
        log = self._log = self._log or EventWriter(self._paths.own_events)
        try:
            log.write(batch)
            self.problem = ""
        except StoreError as error:
            self.problem = f"output is not recorded: {error.message}"
        if was_cut:
            log.drop_events()


_Record = TypeVar("_Record")
_RETRY_S = 0.1
#: so long after a report the next one is due: of output, and of what nobody waits for
_OUTPUT_S, _PATIENT_S = 0.03, 0.05
#: what nobody waits for waits so long for others: of a quick cell all is one report
_TOGETHER_S = 0.02
_BATCH_MESSAGES = 256
#: a report that is under way for longer: the gateway is away
_AWAY_S = 5.0


class Reporter:
    """A queue of messages and the task that sends them."""

    def __init__(self, config: AgentConfig, node: str, incarnation: str) -> None:
        self._config = config
        self._node = node
        self._incarnation = incarnation
        self._queue: list[NodeMessage] = []
        self._wake = asyncio.Event()
        self._due: asyncio.TimerHandle | None = None
        #: time of the loop's clock at which it is due (not every loop's handles tell it)
        self._due_at_s = 0.0
        self._sent_s = 0.0
        #: messages at the queue's beginning that are under way
        self._under_way = 0
        self._gateway: Any = None
        #: a gateway on this host; a closed one counts for nothing
        self._connection: LocalConnection | None = None
        self._server: asyncio.Server | None = None

    async def listen(self, agent: NodeAgentApi) -> None:
        """Have a gateway on this host connect: the two call each other past Ray from then on."""
        path = Path(calls_socket(self._config.runtime, self._node))
        answering = answering_for(agent, NodeAgentApi)
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(
                lambda: LocalConnection(answering, self._on_gateway), path
            )
            path.chmod(0o600)
        except OSError as error:  # a full disk, say: then all calls go through Ray
            log.warning("no calls past Ray on this node: %s", error)

    def _on_gateway(self, connection: LocalConnection) -> None:
        """The newest gateway counts."""
        if self._connection is not None:
            self._connection.close()
        self._connection = connection

    def report(self, message: NodeMessage) -> None:
        """Queue one message; never blocks."""
        loop = asyncio.get_running_loop()
        if isinstance(message, RunEvents) and self._under_way and loop.time() - self._sent_s > _AWAY_S:
            self._drop_earlier(message.attempt_id)
        self._queue.append(message)
        due_s = max(self._sent_s + _apart_s(message), loop.time() + _delay_s(message))
        if due_s <= loop.time():
            self._wake.set()
        elif self._due is None or due_s < self._due_at_s:
            self._forget_due()
            self._due, self._due_at_s = loop.call_at(due_s, self._wake.set), due_s

    def _drop_earlier(self, attempt_id: AttemptId) -> None:
        """Output since a gateway is away is in the run's log: by the numbers of the newest it sees that it lacks some,
        and reads them there.
        """
        late = self._queue[self._under_way :]
        late = [each for each in late if not isinstance(each, RunEvents) or each.attempt_id != attempt_id]
        self._queue[self._under_way :] = late

    async def send_forever(self) -> None:
        """Send for ever; what was not acknowledged is sent again."""
        while True:
            await self._wake.wait()
            self._begin()
            for _ in range(0, len(self._queue), _BATCH_MESSAGES):
                batch = self._queue[:_BATCH_MESSAGES]
                self._under_way = len(batch)
                await self._deliver(GatewayApi.node_report, pack(NodeReport(self._node, self._incarnation, batch)))
                del self._queue[: len(batch)]
                self._under_way = 0

    def _begin(self) -> None:
        self._wake.clear()
        self._sent_s = asyncio.get_running_loop().time()
        self._forget_due()

    def _forget_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def report_node(self, info: Packed[NodeInfo]) -> None:
        """Tell the gateway that this agent is here."""
        await self._deliver(GatewayApi.node_up, info)

    async def _deliver(
        self, method: Callable[[GatewayApi, Packed[_Record]], Coroutine[Any, Any, None]], body: Packed[_Record]
    ) -> None:
        if self._connection is not None and self._connection.is_open:
            with contextlib.suppress(LocalCallError):  # the gateway restarts
                await self._connection.call(method.__name__, body)
                return
        while True:
            try:
                if self._gateway is None:
                    self._gateway = ray.get_actor(self._config.gateway_actor, namespace=self._config.ray_namespace)
                await getattr(self._gateway, method.__name__).remote(body)
                return
            except (RayError, ValueError):  # the gateway restarts (or does not exist yet): look it up again
                self._gateway = None
                await asyncio.sleep(_RETRY_S)


def _apart_s(message: NodeMessage) -> float:
    if isinstance(message, RunPhase):
        return 0.0 if _is_urgent(message) else _PATIENT_S
    return _OUTPUT_S


def _delay_s(message: NodeMessage) -> float:
    return _TOGETHER_S if isinstance(message, RunPhase) and not _is_urgent(message) else 0.0


def _is_urgent(message: RunPhase) -> bool:
    """The next run waits for these GPUs, and a person for what the cell left."""
    return message.phase == "released"
