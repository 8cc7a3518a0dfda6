"""Following: a run's transcript as it grows, from the gateway or, where its cluster is gone, from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ...errors import GatewayUnavailableError
from ...protocol.session import Events
from ...store.event_log import read_events
from ..gateway import GatewayConnection
from ..models import OutputMessage
from ..runs.files import open_record
from ..runs.stored import find_stored, is_own, paths_of
from .transcript import Transcript

#: between two tries to reach a gateway that is away, and between two messages to a page
_PAUSE_S, _GAP_S = 2.0, 0.05


async def follow(gateway: GatewayConnection, run: str) -> AsyncGenerator[OutputMessage, None]:
    """Messages for a page: ``changes`` of the outputs with ``live`` and ``mine``, or a ``problem`` in between.

    Ends with the run's receipt. Waits for a gateway that is away. Raises what the gateway refuses with.
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
            gone = not await asyncio.to_thread(gateway.is_there)
            if gone:
                await asyncio.to_thread(_read_store, gateway, transcript)
                yield _message(gateway, transcript)
                return
            yield OutputMessage(live=True, problem=error.message)
        if not transcript.is_over:
            await asyncio.sleep(_PAUSE_S)


def _message(gateway: GatewayConnection, transcript: Transcript) -> OutputMessage:
    view = transcript.view
    mine = is_own(gateway, view.user) and not view.imported_from  # who exported it made what it shows
    return OutputMessage(transcript.take_changes(), not transcript.is_over, mine)


async def _news(gateway: GatewayConnection, transcript: Transcript) -> AsyncGenerator[None, None]:
    """Yield when the transcript has grown. What comes while a page is slow is taken in one piece."""
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
            await grown.wait()
            grown.clear()
            if over:
                await reading  # raises what ended it
            yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _read_store(gateway: GatewayConnection, transcript: Transcript) -> None:
    """Take the run from its folder: its cluster is gone, and with it the gateway."""
    run = transcript.view.run
    stored = find_stored(gateway, run)
    transcript.show_events(list(read_events(paths_of(gateway, run).events, opener=open_record)))
    transcript.show_view(stored.view)
