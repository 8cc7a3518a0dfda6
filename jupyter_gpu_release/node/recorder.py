"""A run's events: numbered, written to its log, then reported. Recorded first, displayed second."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ..core.messages import Event
from ..core.node_messages import RunEvents
from ..errors import StoreError
from ..storage.events import EventWriter, read_events
from ..storage.layout import RunPaths
from .frames import Output

_BATCH_S = 0.02
_SLOW_STORE_S = 1.0


class Recorder:
    """``tell`` gets the events once they are written (or could not be)."""

    def __init__(self, run: str, paths: RunPaths, tell: Callable[[RunEvents], None]) -> None:
        self._run = run
        self._paths = paths
        self._tell = tell
        self._log = EventWriter(paths.events)
        self._pending: list[Event] = []
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._letting_go: asyncio.Task[None] | None = None
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
            if batch or self.problem:
                await asyncio.to_thread(self._write, batch)
            if batch:
                self._tell(RunEvents(self._run, batch))

    async def write_soon(self) -> None:
        """Write what is pending, but do not wait for a slow store."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.write()), _SLOW_STORE_S)

    async def close(self) -> None:
        """Make the log durable and close it; what comes later opens it again."""
        async with self._writing:
            if self._log.is_open:
                with contextlib.suppress(StoreError, OSError):
                    await asyncio.to_thread(self._log.close)

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

    def _write(self, batch: list[Event]) -> None:
        try:
            self._log.write(batch)
            self.problem = ""
        except StoreError as error:
            self.problem = f"output is not recorded: {error.message}"
