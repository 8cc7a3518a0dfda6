"""The server's connection to the gateway.

One request is always on its way: the gateway answers it when something changes, or after some seconds with fresh
figures. Gateways that cannot do that are asked every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import msgspec
from traitlets.config import LoggingConfigurable

from ..client.config import GpuRelease, find_target
from ..client.discovery import Target, is_alive
from ..client.home import read_secret
from ..client.rest import AsyncGatewayClient, GatewayRequests
from ..client.websocket import follow_run
from ..errors import AuthenticationError, GatewayUnavailableError, GpuReleaseError
from ..protocol.rest import StatusDocument
from ..protocol.session import Events, Update
from ..store.layout import own_store
from .models import Choices, GatewayState, choices_of
from .monitoring.use_history import UseHistory

K = TypeVar("K")
V = TypeVar("V")


class LatestMemo(Generic[K, V]):
    """``make(record)``, remembered for the latest record (the very object: records never change)."""

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._known: tuple[K, V] | None = None

    def value_for(self, record: K) -> V:
        """The value made from the record, maybe just now."""
        if self._known is None or self._known[0] is not record:
            self._known = (record, self._make(record))
        return self._known[1]


def encoded_json(document: V) -> V:
    """JSON of it, to be put into a larger document in its place: encoding that copies it as it is."""
    return cast(V, msgspec.Raw(msgspec.json.encode(cast(Any, document))))


P = ParamSpec("P")
T = TypeVar("T")
_FIRST_BACKOFF_S = 1.0
_NO_GATEWAY = "no GPU cluster is configured and none runs on this machine"
_NO_GATEWAY_MEND = "run `jupyter gpu start`, or name the team's gateway with JUPYTER_GPU_URL"
_TIMEOUT_S = 10.0
#: with nothing held and nobody waiting, figures need not be fresh: changes are told
_QUIET_S = 15.0
#: a gateway that answers at once, for whatever reason, is not asked more often
_LEAST_GAP_S = 0.1


class GatewayListener:
    """Hears of what a :class:`GatewayConnection` learns; called on the server's event loop, and must not block."""

    def on_latency(self, seconds: float) -> None:
        """The gateway took ``seconds`` for an answer."""

    def on_refused(self) -> None:
        """The gateway does not take the token, or there is none."""

    def on_change(self) -> None:
        """The gateway shows something new."""


class GatewayConnection(LoggingConfigurable):
    """Keeps the gateway's last status and its own state; :meth:`ask` is for requests of users."""

    def __init__(self, settings: GpuRelease, listener: GatewayListener, token_file: str = "") -> None:
        """``token_file``: that of one user, in place of the server's own token."""
        super().__init__(parent=settings)
        self._settings = settings
        self._listener = listener
        self._token_file = token_file
        #: set when the first look is over
        self.looked = asyncio.Event()
        self._client: AsyncGatewayClient | None = None
        #: the one that the last status came from: serials of another gateway mean nothing
        self._told_by: AsyncGatewayClient | None = None
        self._error: GpuReleaseError | None = None
        #: the store's root as the gateway named it, which may be gone by now
        self._named_store = ""
        self._backoff_s = _FIRST_BACKOFF_S
        self._answered_s: float | None = None
        self._next_s = 0.0
        self._latency_s: float | None = None
        self._hurry = asyncio.Event()
        self._changing = asyncio.Lock()
        #: the last status of the gateway that is connected now
        self.status: StatusDocument | None = None
        #: of :attr:`status`, for the answers that show it: its JSON, and what it lets a cell ask for
        self.shown: LatestMemo[StatusDocument | None, StatusDocument | None] = LatestMemo(encoded_json)
        self.choices: LatestMemo[StatusDocument | None, Choices] = LatestMemo(choices_of)
        #: how the runs that it has shown use their GPUs
        self.use = UseHistory()
        #: the last status of the gateway, for what must not be forgotten while it is silent; None once it has ended
        self.remembered: StatusDocument | None = None
        #: who asks, as the last gateway that answered knew it; it stays when the cluster has ended
        self.user = ""

    def state(self) -> GatewayState:
        """The state of the line as far as it is known, for people."""
        now_s = time.monotonic()
        age_s = None if self._answered_s is None else now_s - self._answered_s
        error, url = self._error, self._client.target.url if self._client is not None else ""
        if error is None and self._client is None:
            return GatewayState("none", message=_NO_GATEWAY, hint=_NO_GATEWAY_MEND)
        if error is None:
            word = "connected" if age_s is not None else "unreachable"
            return GatewayState(word, url, "" if age_s is not None else "not asked yet", "", self._latency_s, age_s)
        word = "unreachable" if isinstance(error, GatewayUnavailableError) else "refused"
        next_s = max(0.0, self._next_s - now_s)
        return GatewayState(word, url, error.message, error.hint, None, age_s, next_s)

    async def ask(
        self, request: Callable[Concatenate[GatewayRequests, P], T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Ask for somebody who waits. Raises :class:`GpuReleaseError` with the reason when there is no answer."""
        client = await self._connected()
        if client is None:
            raise GatewayUnavailableError(_NO_GATEWAY, hint=_NO_GATEWAY_MEND)
        try:
            return await client.ask(request, *arguments, **named)
        except GatewayUnavailableError:
            self._hurry.set()
            raise

    async def follow(self, run: str, after: int) -> AsyncGenerator[Events | Update, None]:
        """A run's output above event ``after`` and its views, until it is over; raises as :meth:`ask` does."""
        client = await self._connected()
        if client is None:
            raise GatewayUnavailableError(_NO_GATEWAY, hint=_NO_GATEWAY_MEND)
        async with contextlib.aclosing(follow_run(client.target, run, after, _TIMEOUT_S)) as messages:
            async for message in messages:
                yield message

    def is_there(self) -> bool:
        """Tell if there is a gateway to ask: one is named, or this machine's own runs. Raises as :meth:`ask`."""
        return _find(self._settings, self._token_file) is not None

    async def find_target(self) -> Target | None:
        """The gateway as it is named now, and the token for it; None: there is none. Raises as :meth:`ask`."""
        return await asyncio.to_thread(_find, self._settings, self._token_file)

    @property
    def token_file(self) -> str:
        """File of the one user's token; empty: it has the server's own."""
        return self._token_file

    @property
    def is_of_one_user(self) -> bool:
        """Tell if it has the token of one user, not the server's own."""
        return bool(self._token_file)

    @property
    def store(self) -> str:
        """Root of the store as far as it is known here; empty while no gateway is."""
        known = self._client.target.store if self._client is not None else self._settings.store
        root = known or self._named_store
        return str(own_store(Path(root).expanduser())) if root else ""

    async def learn_store(self) -> None:
        """Ask the gateway for the store's root where no setting names it; raises as :meth:`ask`."""
        if not self.store:
            self._named_store = (await self.ask(GatewayRequests.health)).store

    async def run(self) -> None:
        """Look at the gateway until cancelled."""
        try:
            while True:
                began_s = time.monotonic()
                if not await self._look_unless_hurried():
                    await self.ask_status()
                self.looked.set()
                self._hurry.clear()
                pause_s = self.pause_s(began_s)
                self._next_s = time.monotonic() + pause_s
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), pause_s)
                    # somebody found it gone (or back): look at once, but no faster than the first back-off
                    await asyncio.sleep(min(_FIRST_BACKOFF_S, pause_s))
        finally:
            await self.close()

    async def _look_unless_hurried(self) -> bool:
        """Wait for the next change. False: there is nothing to wait with, or somebody found the gateway gone."""
        serial = self.status.serial if self.status is not None else ""
        if not serial or self._error is not None:
            return False
        looking = asyncio.ensure_future(self.ask_status(serial, self._patience_s()))
        hurried = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait([looking, hurried], return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                looking.result()
            return looking.done()
        finally:
            looking.cancel()
            hurried.cancel()

    def _patience_s(self) -> float:
        """The time for which a change is waited for: figures of what is held move by themselves."""
        moves = self.status is not None and (self.status.gpus.held or self.status.runs or self.status.queue)
        interval_s: float = self._settings.poll_interval
        return interval_s if moves else max(interval_s, _QUIET_S)

    async def ask_status(self, after: str = "", wait_s: float = 0.0) -> None:
        """One look: the status (``after``: once it is another), or the reason why there is none."""
        began_s, waited_s = time.monotonic(), 0.0
        try:
            client = await self._connected()
            if client is None:
                self._show(None)
            elif client is self._told_by and after:
                status, waited_s = await client.next_status(after, wait_s)
                self._show(status)
            else:
                self._show(await client.ask(GatewayRequests.status))
            self._told_by = client
            self.remembered = self.status
        except GpuReleaseError as error:
            self._on_failure(error)
            return
        if client is not None:
            self._latency_s = max(0.0, time.monotonic() - began_s - waited_s)
            self._answered_s = time.monotonic()
            self._listener.on_latency(self._latency_s)
            if self._error is not None:
                self.log.info("the GPU gateway %s answers again", client.target.url)
        self._error = None
        self._backoff_s = _FIRST_BACKOFF_S

    def _on_failure(self, error: GpuReleaseError) -> None:
        if self._error is None:
            self.log.warning("GPU gateway: %s (%s)", error.message, error.hint)
        else:
            self._backoff_s = min(self._backoff_s * 2, self._settings.max_backoff)
        self._error = error
        self._show(None)
        if isinstance(error, AuthenticationError):
            self._listener.on_refused()

    def look_now(self) -> None:
        """Look without waiting for the next time: there is a new token."""
        self._hurry.set()

    def _show(self, status: StatusDocument | None) -> None:
        before, self.status = self.status, status
        if status is not None:
            self.use.record(time.time(), status)
            self.user = status.user
        if _outline(before) != _outline(status):
            self._listener.on_change()

    def pause_s(self, began_s: float) -> float:
        """Seconds until the next look, after one that began at ``began_s``."""
        if self._error is None:
            if self.status is not None and self.status.serial:
                return max(0.0, began_s + _LEAST_GAP_S - time.monotonic())
            return float(self._settings.poll_interval)
        # many servers must not come back at the same instant
        return self._backoff_s * random.uniform(0.8, 1.0)

    async def _connected(self) -> AsyncGatewayClient | None:
        """A client for the gateway as it is named now: the own cluster may have started, stopped or moved."""
        async with self._changing:
            try:
                target, tls = await asyncio.to_thread(_find_with_trust, self._settings, self._token_file)
            except GpuReleaseError:
                await self.close()
                raise
            if self._client is None or self._client.target != target or self._client.tls is not tls:
                await self.close()
                self._client = AsyncGatewayClient(target, timeout_s=_TIMEOUT_S) if target is not None else None
            return self._client

    async def close(self) -> None:
        """Close the connections; the next question opens new ones."""
        client, self._client = self._client, None
        self._answered_s = self._latency_s = None
        if client is not None:
            await client.close()


def _outline(status: StatusDocument | None) -> object:
    """The parts of the status that people see change; not the seconds, which always do."""
    if status is None:
        return None
    gpus = [(gpu.state, gpu.holders, gpu.warm_until) for node in status.nodes for gpu in node.gpus]
    runs = [(run.run, run.state, run.progress) for run in status.runs]
    return status.gpus, gpus, runs, [(row.run, row.position, row.reason) for row in status.queue]


def _find(settings: GpuRelease, user_token_file: str) -> Target | None:
    target = find_target(settings)
    if target is not None and not is_alive(target):
        return None  # it was killed, and its connection file left behind
    if target is None or not user_token_file:
        return target
    return replace(target, token=read_secret(Path(user_token_file)), connection=None)


def _find_with_trust(settings: GpuRelease, user_token_file: str) -> tuple[Target | None, ssl.SSLContext | None]:
    """The gateway, and what is trusted of it: another object once the certificates' file was replaced."""
    target = _find(settings, user_token_file)
    return target, target.tls() if target is not None else None
