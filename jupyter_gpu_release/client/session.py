"""The kernel's connection to the gateway: one WebSocket, kept alive and reopened in the background.

One daemon thread has it, with an event loop: no interrupt in the caller's thread leaves half a message on the wire,
and no second thread touches the connection (TLS in two threads at once kills the process).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._version import __version__
from ..errors import AuthenticationError, GatewayUnavailableError, GpuReleaseError, WrongAddressError, from_code
from ..host.interruptible import InterruptibleEvent
from ..protocol.runs import RunRequest
from ..protocol.session import (
    PROTOCOL,
    Accepted,
    Bye,
    Detach,
    GatewayMessage,
    Heartbeat,
    Hello,
    Refused,
    Signal,
    Submit,
    Subscribe,
    Supply,
    Update,
    Welcome,
)
from ..protocol.wire import encode
from ..settings.built_in import BUILT_IN
from . import websocket
from .discovery import Target, is_refused, unreachable
from .feed import ConnectionBack, ConnectionLost, FeedItem, FeedTable, RunFeed
from .websocket import LoopThread, SendQueue, UnackedMessages, open_link, own_end, receive, send

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from .rest import GatewayClient

__all__ = ["ConnectionBack", "ConnectionLost", "FeedItem", "GatewaySession", "RunFeed"]

#: no word from the gateway for so long: the connection is taken for dead
SILENCE_S: float = BUILT_IN["silence_s"].default
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.05, 1.0
#: the one behind `random.uniform` is the notebook's
_JITTER = random.Random()
#: for the new token of a server of a JupyterHub, once the old one has ended: less than the gateway's grace, too
_RENEWED_WITHIN_S = 25.0
#: between tries of a kernel without runs: well below the gateway's reconnect grace (30 s), after which what it keeps
#: there is given up
_LONGEST_IDLE_DELAY_S = 8.0


#: for a gateway to answer
CONNECT_S = 15.0
#: a port of this machine at which nobody listens: a gateway that restarts is back by then
REFUSED_HERE_S = 5.0
_TICK_S = 0.25


class GatewaySession:
    """One notebook's standing with a gateway. All methods may be called from any thread."""

    def __init__(self, target: Target, session_id: str, *, silence_s: float = SILENCE_S) -> None:
        self.target = target
        self.session_id = session_id
        self.welcome: Welcome | None = None
        self._silence_s = silence_s
        self._feeds = FeedTable()
        self._unacked = UnackedMessages()
        self._link: ClientConnection | None = None
        self._thread = LoopThread("gpu-session", self._serve)
        self._send_queue = SendQueue(lambda: self._link, self._thread.call)
        self._retry = asyncio.Event()
        self._settled = InterruptibleEvent()
        self._error: GpuReleaseError | None = None
        self._lost_at: float | None = None
        self._fatal = False
        self._closed = False
        websocket.end_with_process(self)

    # ------------------------------------------------------------------------------- the caller's side
    @property
    def connected(self) -> bool:
        """Tell if the session is welcome at the gateway just now."""
        return self._link is not None

    def connect(self, timeout_s: float = 10.0) -> Welcome:
        """Connect (or wait for the connection); returns the gateway's welcome.

        Raises the gateway's refusal, or :class:`GatewayUnavailableError` after ``timeout_s``.
        """
        self._thread.begin()
        self._retry_now()
        deadline = time.monotonic() + timeout_s
        while not (self._settled.wait(min(1.0, max(0.0, deadline - time.monotonic())))):
            if time.monotonic() >= deadline:
                raise self._error or self.unanswered(timeout_s)
        if self._fatal and self._error is not None:
            raise self._error
        if self.welcome is None:
            raise self.unanswered(timeout_s)
        return self.welcome

    @property
    def silent_s(self) -> float:
        """Time for which the gateway has not answered; 0 while there is contact."""
        lost_at = self._lost_at
        return 0.0 if lost_at is None else time.monotonic() - lost_at

    @property
    def trouble(self) -> GpuReleaseError | None:
        """The reason why there is no connection just now, as far as it is known."""
        return self._error

    def serves(self, target: Target | None) -> bool:
        """Tell if it is the session with ``target``; a renewed token is used from the next connection on."""
        if target is not None and target.is_renewal_of(self.target):
            self.target = target
        return self.target == target

    def unanswered(self, waited_s: float) -> GatewayUnavailableError:
        """The error for a gateway of which nothing was heard at all."""
        return unreachable(
            self.target.url, TimeoutError(f"no word within {waited_s:.2g} s"), configured=self.target.configured
        )

    def submit(
        self,
        request: RunRequest,
        on_item: Callable[[FeedItem], None] | None = None,
        *,
        while_unsent: Callable[[], None] | None = None,
    ) -> RunFeed:
        """Ask for a run; the feed's first item is :class:`Accepted` or :class:`Refused`.

        ``on_item`` gets the items on the session's own thread (many runs need no thread each); it must not block.
        ``while_unsent`` is called there, too, every few seconds without a connection until the gateway has the request.
        """
        feed = RunFeed(request.run, request, 0, self._subscribe, on_item=on_item, while_unsent=while_unsent)
        try:
            self._add(feed)
            self._send_queue.put_message(Submit(request), at_once=on_item is None)
        except BaseException:  # an interrupt: nobody will hear of it, so a reconnect must not send it
            self._feeds.drop_feed(feed)
            raise
        self._retry_now()
        return feed

    def question_client(self) -> GatewayClient:
        """A client for questions before a run is submitted."""
        from .rest import GatewayClient

        return GatewayClient.for_target(self.target)

    def follow(
        self, run: str, after: int = 0, *, adopt: bool = False, on_item: Callable[[FeedItem], None] | None = None
    ) -> RunFeed:
        """Hear of a run from event ``after`` + 1 on (also one that this session did not submit).

        ``adopt``: if the kernel that submitted it is gone, the run belongs to this session from now on. ``on_item``: as
        in :meth:`submit`.
        """
        feed = RunFeed(run, None, after, self._subscribe, adopt=adopt, on_item=on_item)
        self._add(feed)
        self._send_queue.put_message(Subscribe(run, after, adopt))
        return feed

    def signal(self, run: str, signal: str = "interrupt") -> None:
        """``interrupt`` (a second one kills), ``pruned`` or ``kill``; without a connection sent after the reconnect."""
        self._tell(Signal(run, signal, secrets.token_hex(8)))

    def supply(self, message: Supply) -> None:
        """Give a running cell what it asked for; sent after the reconnect when there is no connection."""
        self._tell(message)

    def detach(self, run: str) -> None:
        """Let a run go on when this kernel ends; done once its view is ``detached``."""
        self._tell(Detach(run))

    def drop_feed(self, feed: RunFeed) -> None:
        """Hear no more of a run (it goes on)."""
        self._feeds.drop_feed(feed)

    def close(self, timeout_s: float = 2.0) -> None:
        """Say good-bye (the gateway ends this session's attached runs now) and end the thread."""
        if self._closed:
            return
        self._closed = True
        self._send_queue.put_message(Bye())
        self._send_queue.put_message(None)
        ended = GatewayUnavailableError(f"this notebook's session with the gateway {self.target.url} was ended")
        for feed in self._feeds.all():
            feed.put_item(ConnectionLost(ended, final=True))
        self._thread.end(timeout_s)

    # ----------------------------------------------------------------------------------- in its thread
    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read_forever())
            await self._send_queue.write_forever()
            reading.cancel()

    async def _read_forever(self) -> None:
        delay_s = _FIRST_DELAY_S
        while not self._over():
            self._retry.clear()  # here: what is asked for while an attempt fails is not slept through
            try:
                async with open_link(self.target, timeout_s=10.0) as link:
                    await self._greet(link)
                    delay_s = _FIRST_DELAY_S
                    await self._read(link)
            except GpuReleaseError as error:
                self._on_lost(error)
            if not self._over():
                self._feeds.keep_unsent()
                await self._pause(delay_s * _JITTER.uniform(0.8, 1.2))
            delay_s = min(delay_s * 2, _LONGEST_DELAY_S if self._feeds.all() else _LONGEST_IDLE_DELAY_S)

    async def _pause(self, pause_s: float) -> None:
        """Or until another try is asked for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._retry.wait()

    async def _greet(self, link: ClientConnection) -> None:
        """Hello, Welcome, and everything that was not acknowledged once more."""
        resume = self._feeds.resume()
        await send(link, encode(Hello(PROTOCOL, self.session_id, __version__, resume, own_end(link))))
        try:
            async with asyncio.timeout(10.0):
                answer = await receive(link)
        except TimeoutError:
            raise self.unanswered(10.0) from None
        if isinstance(answer, Refused):
            raise from_code(answer.code, answer.message, answer.hint)
        if not isinstance(answer, Welcome):
            raise GatewayUnavailableError(f"the gateway {self.target.url} greeted with {type(answer).__name__}")
        self.welcome = answer
        self._link = link
        for feed in self._feeds.all():
            feed.on_reconnect()
            if self._lost_at is not None:
                feed.put_item(ConnectionBack())
            if feed.request is not None:
                self._send_queue.put_message(Submit(feed.request))
            elif feed.adopt or feed.last_event < resume.get(feed.run, math.inf):  # one that came after the Hello
                self._send_queue.put_message(Subscribe(feed.run, feed.last_event, feed.adopt))
        self._send_unacked(again=True)
        self._lost_at = self._error = None
        self._settled.set()

    async def _read(self, link: ClientConnection) -> None:
        try:
            async with asyncio.timeout(self._silence_s) as silence:
                while True:
                    message = await receive(link)
                    if not self._closed:  # else the good-bye is on its way
                        self._dispatch(message)
                    silence.reschedule(asyncio.get_running_loop().time() + self._silence_s)
        except TimeoutError:
            raise GatewayUnavailableError(f"the gateway {self.target.url} fell silent") from None

    def _dispatch(self, message: GatewayMessage) -> None:
        if isinstance(message, Refused) and not message.run:
            raise from_code(message.code, message.message, message.hint)
        if isinstance(message, Heartbeat | Welcome):
            if isinstance(message, Heartbeat):
                self._unacked.on_echo(message)
            return
        run = message.view.run if isinstance(message, Accepted | Update) else message.run
        for feed in self._feeds.feeds_of(run):
            feed.on_message(message)
            if feed.ended:
                self.drop_feed(feed)

    def _on_lost(self, error: GpuReleaseError) -> None:
        self._link = None
        if self._closed:
            return
        if self._is_renewable(error):
            error = GatewayUnavailableError(error.message, hint=error.hint)
        self._error = error
        # where a gateway has been before it may come back, whatever answers in its place just now
        at_wrong_address = isinstance(error, WrongAddressError) and self.welcome is None
        self._fatal = at_wrong_address or not isinstance(error, GatewayUnavailableError)
        if self._lost_at is None or self._fatal:  # lost, then refused on coming back (a revoked token): both are told
            self._lost_at = self._lost_at or time.monotonic()
            for feed in self._feeds.all():
                feed.put_item(ConnectionLost(error, self._fatal))
        if self._fatal:
            self._settled.set()
        else:
            self._settled.clear()

    def _is_renewable(self, error: GpuReleaseError) -> bool:
        """Tell if a refused token is worth another try: its file holds another one, or soon will."""
        if not isinstance(error, AuthenticationError):
            return False
        before, self.target = self.target, self.target.with_current_token()
        return self.target != before or (before.is_renewed and self.silent_s < _RENEWED_WITHIN_S)

    # ------------------------------------------------------------------------------------ small parts
    def _over(self) -> bool:
        return self._closed or self._fatal

    def _retry_now(self) -> None:
        self._thread.call(self._retry.set)

    def _tell(self, message: Signal | Detach | Supply) -> None:
        """Now, or after the reconnect when there is no connection."""
        self._unacked.keep_message(message)
        if self._link is None:
            self._retry_now()
        else:
            self._send_unacked()

    def _send_unacked(self, *, again: bool = False) -> None:
        for message in self._unacked.due(again=again):
            self._send_queue.put_message(message)

    def _add(self, feed: RunFeed) -> None:
        self._feeds.add_feed(feed)
        if self._fatal and self._error is not None:
            feed.put_item(ConnectionLost(self._error, final=True))
        elif self._lost_at is not None and self._error is not None:
            feed.put_item(ConnectionLost(self._error))
        self._thread.begin()

    def _subscribe(self, run: str, after: int) -> None:
        self._send_queue.put_message(Subscribe(run, after))

    def forget_in_fork(self) -> None:
        """Clear up in a fork: the threads are gone, and the socket must not outlive the kernel by this copy."""
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            websocket.forget_link_in_fork(link)


def connect(session: GatewaySession, on_wait: Callable[[float], None] = lambda _waited_s: None) -> None:
    """Return when the session is welcome, or raise the reason why it is not.

    A gateway that restarts gets the time for that. ``on_wait`` hears again and again how long it has taken so far.
    """
    began = time.monotonic()
    while True:
        try:
            session.connect(_TICK_S)
        except WrongAddressError as error:
            raise GatewayUnavailableError(error.message, hint=error.hint) from error
        except GatewayUnavailableError as error:
            waited_s = time.monotonic() - began
            if waited_s >= _patience_s(session, error):
                raise session.trouble or session.unanswered(waited_s) from None
            on_wait(waited_s)
        else:
            return


def _patience_s(session: GatewaySession, error: GatewayUnavailableError) -> float:
    """Seconds to go on trying; a gateway that has been there, and this machine's own, are given the whole time."""
    is_new = session.welcome is None and session.target.connection is None
    return REFUSED_HERE_S if is_new and session.target.is_loopback and is_refused(error) else CONNECT_S
