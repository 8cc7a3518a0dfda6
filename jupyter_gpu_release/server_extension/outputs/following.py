"""Following: a run's transcript as it grows, from the gateway or, where its cluster is gone, from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from ...client.home import HomePaths
from ...errors import ForbiddenError, GatewayUnavailableError, NoSuchRunError, StoreError
from ...protocol.runs import RunView
from ...protocol.session import Events
from ...protocol.states import RunState, is_run_id
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
                    if transcript.is_known:  # what was recorded before its first view comes with it
                        yield _message(gateway, transcript)
                        await asyncio.sleep(_GAP_S)
        except GatewayUnavailableError as error:
            gone = not await asyncio.to_thread(gateway.is_there)
            if gone and await asyncio.to_thread(_read_store, gateway, transcript):
                yield _message(gateway, transcript)
                return
            yield OutputMessage(live=True, problem=error.message)
        if not transcript.is_over:
            await asyncio.sleep(_PAUSE_S)


def _message(gateway: GatewayConnection, transcript: Transcript) -> OutputMessage:
    mine = _is_own(gateway, transcript.view)
    return OutputMessage(transcript.take_changes(), not transcript.is_over, mine)


def _is_own(gateway: GatewayConnection, view: RunView) -> bool:
    status = gateway.remembered
    return status is not None and bool(view.user) and status.user == view.user


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


def _read_store(gateway: GatewayConnection, transcript: Transcript) -> bool:
    """Take the run from its folder: its cluster is gone, and with it the gateway. False: nothing is known there.

    Where each user has a token of her own, she sees her own runs: nobody else is there to decide it.
    """
    run, store = transcript.view.run, gateway.store
    try:
        paths = RunPaths.of(Path(store) if store else HomePaths.from_environment().store, run)
        view = _view_in(read_manifest(paths))
        if gateway.is_of_one_user and not _is_own(gateway, view):
            raise ForbiddenError(f"run {run} may be another user's", hint="once its cluster is back, that decides")
        transcript.show_events(list(read_events(paths.events)))
    except StoreError as error:
        if is_run_id(run) and not isinstance(error.__cause__, FileNotFoundError):
            raise  # a record is there
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
