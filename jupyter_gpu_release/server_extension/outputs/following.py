"""Following: a run's transcript as it grows, from the gateway or, where its cluster is gone, from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial

from ...errors import ForbiddenError, GatewayUnavailableError, NoSuchRunError, StoreError
from ...host.threads import StoreThreads
from ...presentation.run_row import own_view
from ...protocol.runs import RunView
from ...protocol.session import Events
from ...store.event_log import read_piece
from ..gateway import GatewayConnection
from ..models import OutputMessage
from ..runs.files import open_record
from ..runs.stored import find_stored, is_own, paths_of
from .cell_outputs import Change
from .transcript import Transcript

#: between two tries to reach a gateway that is away, and between two messages to a page
_PAUSE_S, _GAP_S = 2.0, 0.05
#: what a run that waits says gets old (for how long others hold its GPUs), and here no kernel says it anew
_RENEWED_S = 10.0
#: of a log, read at once
_PIECE_BYTES = 1 << 20


async def follow(gateway: GatewayConnection, run: str, threads: StoreThreads) -> AsyncGenerator[OutputMessage, None]:
    """Messages for a page: ``changes`` of the outputs with ``live`` and ``mine``, or a ``problem`` in between.

    Ends with the run's receipt. Waits for a gateway that is away. Raises what the gateway refuses with, and
    :class:`StoreError` for a store that does not answer (``threads`` read it).
    """
    transcript = Transcript(run)
    while not transcript.is_over:
        try:
            async with aclosing(_news(gateway, transcript)) as news:
                async for _ in news:
                    if transcript.is_known:  # what was recorded before its first view comes with it
                        yield _message(gateway, transcript)
                        await asyncio.sleep(_GAP_S)
        except GatewayUnavailableError as error:
            goes_on = True
            async for told in _while_away(gateway, transcript, threads):
                yield told
                goes_on = told.live
            if not goes_on:
                return
            yield OutputMessage(live=True, problem=error.message)
        if not transcript.is_over:
            await asyncio.sleep(_PAUSE_S)


def _message(
    gateway: GatewayConnection, transcript: Transcript, view: RunView | None = None, changes: list[Change] | None = None
) -> OutputMessage:
    """``changes``: those that were taken already."""
    view = view or transcript.view
    mine = is_own(gateway, view.user) and not view.imported_from  # who exported it made what it shows
    if changes is None:
        changes = transcript.take_changes()
    return OutputMessage(changes, not transcript.is_over, mine)


async def _news(gateway: GatewayConnection, transcript: Transcript) -> AsyncGenerator[None, None]:
    """Yield when the transcript has grown, or says anew where a run waits.

    What comes while a page is slow is taken in one piece.
    """
    grown, over = asyncio.Event(), False

    async def read() -> None:
        nonlocal over
        try:
            async with aclosing(gateway.follow(transcript.view.run, transcript.last_event)) as messages:
                async for message in messages:
                    if isinstance(message, Events):
                        transcript.show_events(message.events)
                    else:
                        transcript.show_view(message.view)
                    grown.set()
                    if transcript.is_over:
                        break
        finally:
            over = True
            grown.set()

    reading = asyncio.create_task(read(), name=f"output of {transcript.view.run}")
    try:
        while not over or grown.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(grown.wait(), _RENEWED_S)
            if not grown.is_set() and not transcript.renew():
                continue
            grown.clear()
            if over:
                await reading  # raises what ended it
            yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _while_away(
    gateway: GatewayConnection, transcript: Transcript, threads: StoreThreads
) -> AsyncGenerator[OutputMessage, None]:
    """The run as its store has it: its gateway is gone; or silent: then once, and if it can be."""
    if not await asyncio.to_thread(gateway.is_there):
        async for told in _from_store(gateway, transcript, threads, is_gone=True):
            yield told
    elif not transcript.is_known:
        with suppress(NoSuchRunError, ForbiddenError, StoreError):  # the gateway decides, once it answers
            async for told in _from_store(gateway, transcript, threads, is_gone=False):
                yield told


async def _from_store(
    gateway: GatewayConnection, transcript: Transcript, threads: StoreThreads, *, is_gone: bool
) -> AsyncGenerator[OutputMessage, None]:
    """Take the run from its folder, piece by piece: its gateway is silent, or gone with its cluster."""
    run = transcript.view.run
    stored = await threads.run(partial(find_stored, gateway, run, is_gone=is_gone))
    log, at = paths_of(gateway, run).events, 0
    while True:
        events, behind = await threads.run(lambda start=at: read_piece(log, start, _PIECE_BYTES, opener=open_record))
        if not events:
            break
        at = behind
        transcript.show_events(events)
        if changes := transcript.take_changes():
            yield _message(gateway, transcript, stored.view, changes)
            await asyncio.sleep(_GAP_S)
    transcript.show_view(own_view(stored.view))
    yield _message(gateway, transcript)
