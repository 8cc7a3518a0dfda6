"""A run's events: numbered, written to its log, then reported. Recorded first, displayed second."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..core.messages import Event, encode
from ..core.node_messages import RunEvents
from ..errors import StoreError
from ..storage.events import KEPT_BYTES, EventWriter, read_events
from ..storage.layout import RunPaths
from ..storage.store_threads import StoreThreads
from .frames import Output

_BATCH_S = 0.02
_SLOW_STORE_S = 1.0


class Recorder:
    """``tell`` gets the events once they are written, or could not be, or the store has not answered for a second."""

    def __init__(self, run: str, paths: RunPaths, tell: Callable[[RunEvents], None], threads: StoreThreads) -> None:
        self._run = run
        self._paths = paths
        self._tell = tell
        self._threads = threads
        self._log = EventWriter(paths.events)
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

    def add(self, output: Output, marks: dict[str, object]) -> None:
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
            await self.write()
            await asyncio.sleep(_BATCH_S)

    async def write(self) -> None:
        """Write what is pending to the log, then report it."""
        async with self._writing:
            batch, self._pending = self._pending, []
            self._hold(batch)
            while self._under_way is not None or self._unwritten or self.problem:
                if not await self._has_written() or not self._unwritten:
                    break
            if batch:
                self._tell(RunEvents(self._run, batch))

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
            self._under_way = self._threads.begin(self._write, events, self._unwritten_bytes > KEPT_BYTES)
            self._unwritten_bytes = 0
        await asyncio.wait([self._under_way], timeout=0.0 if is_known_to_hang else _SLOW_STORE_S)
        if not self._under_way.done():
            if not is_known_to_hang:
                self.problem = "output is not recorded: the store does not answer"
                self._under_way.add_done_callback(lambda _: self._wake.set())
            return False
        self._under_way = None
        return True

    async def write_soon(self) -> None:
        """Write what is pending, but do not wait for a slow store."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.write()), _SLOW_STORE_S)

    async def close(self) -> None:
        """Make the log durable and close it; what comes later opens it again. A store that hangs is left to it."""
        async with self._writing:
            if self._under_way is None and self._log.is_open:
                with contextlib.suppress(StoreError, OSError):
                    await self._threads.run(self._log.close)

    def end(self) -> None:
        """Nothing more comes: what the store has not taken yet is written when it answers."""
        if self._under_way is not None and self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._write_at_last())

    async def _write_at_last(self) -> None:
        while self._under_way is not None:
            await asyncio.wait([self._under_way])
            await self.write()
        await self.close()

    def let_go(self) -> None:
        """The store refuses: keep no file of it open, or it could not be unmounted or remounted to mend it."""
        if self._letting_go is None or self._letting_go.done():
            self._letting_go = asyncio.get_running_loop().create_task(self.close())

    def after(self, after: int) -> list[Event]:
        """Recorded events above ``after``, and those that the store has refused so far."""
        kept = self._log.kept()
        recorded = list(read_events(self._paths.events, after))
        last = recorded[-1].n if recorded else after
        return [*recorded, *(event for event in kept if event.n > last)]

    def _write(self, batch: list[Event], was_cut: bool) -> None:
        try:
            self._log.write(batch)
            self.problem = ""
        except StoreError as error:
            self.problem = f"output is not recorded: {error.message}"
        if was_cut:
            self._log.cut()
