"""Following a run: brings one client up to date, as fast as that client reads.

Nothing is queued per client: what a follower still has to send is found in the run (its tail of events, its
newest view), so a slow client costs no memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...protocol.session import Update
from ...protocol.wire import encode
from ..auth.permissions import Caller
from ..runs.record import RunRecord
from ..service import GatewayService

Send = Callable[[bytes], Awaitable[None]]


class Subscription:
    """A client's progress with one run: the last event sent and the ``seq`` of the last view sent."""

    def __init__(self, service: GatewayService, caller: Caller, record: RunRecord, after: int, seq: int = -1) -> None:
        self.record = record
        self.sent = after
        self.seq = seq
        self._service = service
        self._caller = caller

    async def catch_up(self, send: Send) -> None:
        """Send what is new: all events first, then the view (so that an end never overtakes output)."""
        while await self._send_events(send):
            pass
        view = self.record.view
        if view.seq > self.seq and self.record.may_be_told:
            self.seq = view.seq
            await send(encode(Update(self._service.visible(self._caller, view), after_event=self.sent)))

    async def _send_events(self, send: Send) -> bool:
        before = self.sent
        if self.record.tail.known and before >= self.record.tail.last:
            return False
        async for batch in self._service.batches_after(self._caller, self.record, before):
            if batch.last > self.sent:
                await send(batch.message)
                self.sent = batch.last
        return self.sent > before
