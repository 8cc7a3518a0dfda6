"""One run on this node: its ranks' connections, the numbering and recording of its events, its phases."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..core.messages import Event, Outcome, PersistWait, decode, encode
from ..core.node_messages import NodeMessage, NodeRun, RunEvents, RunPhase, RunWaits, StartOrder
from ..errors import GpuReleaseError, StoreError
from ..storage.events import EventWriter, read_events
from ..storage.layout import RunPaths
from . import gang, process
from .fork_servers import ForkServer, ForkServers
from .frames import Command, FrameReader, Kind, Output, RankOrder, died_outcome, pack
from .gpu_use import UseMeter
from .keeping import Keeping
from .settlement import settled_outcome

_BATCH_S = 0.02
_SLOW_STORE_S = 1.0
#: a prepared run that is not granted after this never will be: its gateway is gone
_GRANT_S = 60.0


class RunOnNode:
    """Carries out one :class:`StartOrder`; ``tell`` gets the messages for the gateway, in order."""

    def __init__(
        self,
        order: StartOrder,
        servers: ForkServers,
        meter: UseMeter,
        keeping: Keeping,
        tell: Callable[[NodeMessage], None],
    ) -> None:
        self.order = order
        self.waits_for: PersistWait | None = None
        self._keeping = keeping
        self._granted: asyncio.Future[bool] = asyncio.get_event_loop().create_future()
        if order.gpu_ids is not None:
            self._granted.set_result(True)
        self.phase = "starting"
        self.outcome: Outcome | None = None
        self._paths = RunPaths(Path(order.folder))
        self._servers = servers
        self._meter = meter
        self._tell_gateway = tell
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._log = EventWriter(self._paths.events)
        self._pending: list[Event] = []
        self._count = 0
        self._wake = asyncio.Event()
        self._recording = asyncio.Lock()
        self._signalled: Command | None = None
        self._at_s = time.time()
        self._log_problem = ""

    def view(self) -> NodeRun:
        """This run for a gateway that was started anew."""
        return NodeRun(self.order.run, self.phase, self._count, self._at_s, self.outcome, self.waits_for)

    def events(self, after: int) -> list[Event]:
        """Recorded events above ``after``, and those that the store has refused so far."""
        kept = self._log.kept()
        recorded = list(read_events(self._paths.events, after))
        last = recorded[-1].n if recorded else after
        return [*recorded, *(event for event in kept if event.n > last)]

    # ------------------------------------------------------------------------------ the run's life
    def grant(self, gpu_ids: list[str]) -> None:
        """The lease is there, with these accelerators: the cell may run."""
        if not self._granted.done():
            self.order = msgspec.structs.replace(self.order, gpu_ids=gpu_ids)
            self._granted.set_result(True)

    def abandon(self) -> None:
        """The lease will not be granted: end what was prepared, without a word."""
        if not self._granted.done():
            self._granted.set_result(False)

    async def carry_out(self) -> None:
        """From the order to the durable end; never raises."""
        recorder = asyncio.create_task(self._record_forever())
        try:
            if await self._until_released():
                await self._finish()
        finally:
            recorder.cancel()

    async def _until_released(self) -> bool:
        """Returns False when the run was not granted: then there is nothing to finish."""
        try:
            return await self._run_ranks()
        except GpuReleaseError as error:
            outcome = died_outcome("error", type(error).__name__, error.message, code=error.code, mend=error.mend)
            await self._released(outcome)
        except OSError as error:
            await self._released(died_outcome("died", "NodeError", f"the rank could not be started: {error}"))
        return True

    async def _run_ranks(self) -> bool:
        """Returns False when the lease was not granted. Ranks get ready while it is being made."""
        try:
            server = await self._servers.get(fresh=self.order.fresh)
        except GpuReleaseError:
            if await self._until_granted():
                raise
            return False
        try:
            readers = [
                await self._connect(server, rank_order)
                for rank_order in gang.rank_orders(self.order, self._keeping.order)
            ]
            if not await self._until_granted():
                return False
            for writer, ids in zip(
                self._writers.values(), gang.shares(self.order.gpu_ids or [], len(readers)), strict=True
            ):
                writer.write(pack(Kind.GO, encode(ids)))
            if self._signalled is not None:
                self._send(self._signalled)
            await asyncio.gather(*(self._follow(rank, reader) for rank, reader in enumerate(readers)))
            return True
        finally:
            for writer in self._writers.values():
                writer.close()
            self._servers.done_with(server)

    async def _until_granted(self) -> bool:
        try:
            return await asyncio.wait_for(asyncio.shield(self._granted), _GRANT_S)
        except TimeoutError:
            self.abandon()
            return False

    async def _connect(self, server: ForkServer, order: RankOrder) -> asyncio.StreamReader:
        reader, writer = await server.take()
        self._writers[order.rank] = writer
        writer.write(pack(Kind.ORDER, encode(order)))
        return reader

    async def _follow(self, rank: int, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        while data := await reader.read(1 << 18):
            for kind, body in frames.feed(data):
                if kind is Kind.OUTPUT:
                    self._number(rank, body)
                elif kind is Kind.RUNNING:
                    self._on_running(rank, decode(body, float))
                elif kind is Kind.ENDED:
                    self._on_ended(rank, decode(body, float))
                elif kind is Kind.PERSISTER:
                    self._keeping.begin(self.order.run, self.order.folder, decode(body, int))
                elif kind is Kind.RELEASED:
                    await self._on_rank_released(rank, decode(body, Outcome))
        if rank not in self._outcomes:
            # nobody collected what the cell had started: it is known by its marker
            await asyncio.to_thread(process.end_marked, process.RUN_MARKER, self.order.run)
            await self._on_rank_released(rank, self._unreported(rank))

    def _unreported(self, rank: int) -> Outcome:
        """The outcome of a rank whose supervisor died; its results may be with their persister already."""
        found = self._keeping.found(self.order.run) if rank == 0 else None
        lost = "the rank's supervisor ended without a word; the cell's names are gone"
        return found or died_outcome("died", "CellProcessDied", lost)

    def _on_running(self, rank: int, at_s: float) -> None:
        if rank == 0 and self.phase == "starting":
            self._meter.begin(self.order)
            self._phase("running", at_s)

    def _on_ended(self, rank: int, at_s: float) -> None:
        if rank == 0:
            self._phase("ended", at_s)

    async def _on_rank_released(self, rank: int, outcome: Outcome) -> None:
        self._outcomes[rank] = outcome
        if outcome.status != "ok" and len(self._outcomes) < self.order.ranks and self._signalled is None:
            self._send(Command("interrupt"), skip=self._outcomes)
        if len(self._outcomes) == self.order.ranks:
            await self._released(gang.merge(self._outcomes))

    async def _released(self, outcome: Outcome) -> None:
        use = self._meter.end(self.order)
        if use is not None:
            outcome = msgspec.structs.replace(outcome, gpu_use=use)
        if outcome.released_s is None:
            outcome = msgspec.structs.replace(outcome, released_s=time.time())
        if self._log_problem:
            outcome = msgspec.structs.replace(outcome, notes=[*outcome.notes, self._log_problem])
        self.outcome = outcome
        self._keeping.released(self.order.run, outcome, self._on_wait)
        # the last output comes before the release, but a slow store must not hold a GPU
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._record()), _SLOW_STORE_S)
        self._phase("released", outcome.released_s or time.time())

    def _on_wait(self, wait: PersistWait) -> None:
        self.waits_for = wait
        self._tell_gateway(RunWaits(self.order.run, wait))

    async def _finish(self) -> None:
        """Wait until the results are durable, then say so."""
        assert self.outcome is not None
        run, values = self.order.run, self.outcome.values
        if values is not None:
            if values.file:
                settlement = await self._keeping.settled(run)
            else:
                settlement = await self._keeping.keep_small(run, self.order.folder, self.outcome, self._on_wait)
            self.outcome = settled_outcome(run, self.outcome, settlement)
        problem = self._log_problem
        await self._record()
        if problem and not self._log_problem:  # the store works again
            notes = [note for note in self.outcome.notes if note != problem]
            self.outcome = msgspec.structs.replace(self.outcome, notes=notes)
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(self._log.close)
        self._phase("final", time.time())

    # -------------------------------------------------------------------------------- signals
    def signal(self, name: str, status: str) -> None:
        """``interrupt`` or ``kill`` all ranks (remembered when they are still being started)."""
        self._signalled = Command(name, status)
        self._send(self._signalled)

    def _send(self, command: Command, skip: dict[int, Outcome] | None = None) -> None:
        for rank, writer in self._writers.items():
            if not skip or rank not in skip:
                with contextlib.suppress(OSError):
                    writer.write(pack(Kind.SIGNAL, encode(command)))

    # ------------------------------------------------------------------------------ recording
    def _phase(self, phase: str, at_s: float) -> None:
        self.phase, self._at_s = phase, at_s
        self._tell_gateway(RunPhase(self.order.run, phase, at_s, self.outcome))

    def _number(self, rank: int, body: bytes) -> None:
        for output in decode(body, list[Output]):
            self._count += 1
            data = {**output.data, "rank": rank} if rank else output.data
            self._pending.append(Event(self._count, output.at_s, output.kind, data))
        self._wake.set()

    async def _record_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._record()
            await asyncio.sleep(_BATCH_S)

    async def _record(self) -> None:
        """Write what is pending to the log, then report it: recorded first, displayed second."""
        async with self._recording:
            batch, self._pending = self._pending, []
            if batch or self._log_problem:
                await asyncio.to_thread(self._write, batch)
            if batch:
                self._tell_gateway(RunEvents(self.order.run, batch))

    def _write(self, batch: list[Event]) -> None:
        try:
            self._log.write(batch)
            self._log_problem = ""
        except StoreError as error:
            self._log_problem = f"output is not recorded: {error.message}"
