"""Following: a run's transcript as it grows, from the gateway or, where its cluster is gone, from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from ...client.home import HomePaths
from ...errors import GatewayUnavailableError, GpuReleaseError, NoSuchRunError, StoreError
from ...protocol.runs import RunView
from ...protocol.session import Events
from ...protocol.states import RunState
from ...store.event_log import read_events
from ...store.layout import RunPaths
from ...store.run_folders import read_manifest
from ..gateway import GatewayConnection
from ..models import OutputMessage
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
                    yield _message(gateway, transcript)
                    await asyncio.sleep(_GAP_S)
        except GatewayUnavailableError as error:
            gone = not await asyncio.to_thread(gateway.is_there)
            if gone and await asyncio.to_thread(_read_store, gateway.store, transcript):
                yield _message(gateway, transcript)
                return
            yield OutputMessage(live=True, problem=error.message)
        if not transcript.is_over:
            await asyncio.sleep(_PAUSE_S)


def _message(gateway: GatewayConnection, transcript: Transcript) -> OutputMessage:
    status, user = gateway.remembered, transcript.view.user
    mine = status is not None and bool(user) and status.user == user
    return OutputMessage(transcript.take_changes(), not transcript.is_over, mine)


async def _news(gateway: GatewayConnection, transcript: Transcript) -> AsyncGenerator[None, None]:
    """Yield when the transcript has grown. What comes while a page is slow is taken in one piece."""
    grown, over = asyncio.Event(), False
    failure: GpuReleaseError | None = None

    async def read() -> None:
        nonlocal over, failure
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
        except GpuReleaseError as error:
            failure = error
        finally:
            over = True
            grown.set()

    reading = asyncio.create_task(read(), name=f"output of {transcript.view.run}")
    try:
        while not over or grown.is_set():
            await grown.wait()
            grown.clear()
            if failure is not None:
                raise failure
            yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _read_store(store: str, transcript: Transcript) -> bool:
    """Take the run from its folder: its cluster is gone, and with it the gateway. False: nothing is known there."""
    run = transcript.view.run
    try:
        paths = RunPaths.of(Path(store) if store else HomePaths.from_environment().store, run)
        view = _view_in(read_manifest(paths))
        transcript.show_events(list(read_events(paths.events)))
    except StoreError as error:
        raise NoSuchRunError(f"run {run} is not known here", hint="it belongs to another cluster") from error
    except msgspec.ValidationError:
        return False
    transcript.show_view(view)
    return True


def _view_in(manifest: dict[str, Any]) -> RunView:
    """The run as its manifest describes it; what had not ended, ended with its cluster."""
    values = (manifest.get("outcome") or {}).pop("values", None)
    view = msgspec.convert(manifest, RunView, strict=False)
    if RunState.of(view.state).is_terminal:
        return view
    reason = "its cluster ended before it" if values is None else "its cluster ended before its results were written"
    return msgspec.structs.replace(view, state=RunState.LOST.word, reason=reason, outcome=None)
