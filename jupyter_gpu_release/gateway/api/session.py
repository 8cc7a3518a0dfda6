"""One kernel's session socket: Hello and Welcome, then submissions and signals in, updates and events out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from ...errors import (
    ForbiddenError,
    GpuReleaseError,
    ProtocolError,
    RequestError,
    RunCancelledError,
    TooManyRequestsError,
)
from ...host.background import BackgroundWork
from ...protocol.runs import Reason, RunRequest
from ...protocol.session import (
    PROTOCOL,
    PRUNED,
    Accepted,
    Bye,
    ClientMessage,
    Detach,
    Heartbeat,
    Hello,
    Refused,
    Signal,
    Submit,
    Subscribe,
    Supply,
    driver_session,
    is_understood,
)
from ...protocol.wire import decode, encode
from ..auth.permissions import ASSISTANT, Act, Caller
from ..runs.machine import INTERRUPTED, Cancel
from ..runs.record import RunRecord
from ..runs.sessions import Session
from ..service import GatewayService
from .http_connection import AT_ONCE
from .route import MALFORMED
from .run_follower import Subscription

log = logging.getLogger(__name__)
_HELLO_S = 10.0
#: answers that wait for a client that does not read; beyond it is cut off and must come back
_MOST_ANSWERS = 1000
#: a heartbeat so soon after the last one is counted like any message
_BEAT_S = 1.0
#: a client that waits (its turn, an answer) hears from us so often: it takes 15 s of silence for a dead gateway
_SIGN_S = 3.0


class SessionConnection:
    """Reads messages one after the other; a writer task sends what followers have and answers wait."""

    def __init__(
        self, service: GatewayService, socket: WebSocket, caller: Caller, turn_of_message: Callable[[float], float]
    ) -> None:
        self._service = service
        self._socket = socket
        self._caller = caller
        #: seconds until a message that came at this time has its turn
        self._turn_of_message = turn_of_message
        self._had_to_wait = False
        self._echoed_s = self._sign_s = -math.inf
        #: nothing lies between the client and us: when its end is closed, its process is gone
        self.is_direct = False
        self._session: Session | None = None
        self._followers: dict[str, Subscription] = {}
        self._watches: dict[str, Callable[[], None]] = {}
        self._dirty: dict[str, None] = {}
        self._answers: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._over = asyncio.Event()
        self._said_bye = self._is_detached = False
        self._spawn = BackgroundWork().spawn
        self._fault: GpuReleaseError | None = None
        #: the submission that is being taken in, and its run
        self._submitting: tuple[str, asyncio.Task[RunRecord]] | None = None

    async def serve(self) -> None:
        """Serve one connection, from the accepted upgrade to its end; never raises."""
        await self._socket.accept()
        try:
            await self._greet()
        except GpuReleaseError as error:
            if isinstance(error, ForbiddenError):
                self._service.audit.write_entry(self._caller, "session", result=error.code, detail=error.message)
            await self._refuse_connection(error)
            return
        except WebSocketDisconnect:
            return
        self._socket.scope[AT_ONCE] = self._echo
        tasks = [asyncio.ensure_future(work) for work in (self._read(), self._write(), self._over.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    log.error("a session connection failed", exc_info=ended)
            self._detach()
            await (self._close_socket(1000) if self._fault is None else self._refuse_connection(self._fault))

    async def close(self, reason: str) -> None:
        """End the connection from the gateway's side."""
        log.info("session connection closed: %s", reason)
        self._over.set()

    # ---------------------------------------------------------------------------------------- hello
    async def _greet(self) -> None:
        try:
            hello = await asyncio.wait_for(self._next(), _HELLO_S)
        except TimeoutError as error:
            raise RequestError("the client said no hello") from error
        if not isinstance(hello, Hello):
            raise RequestError(f"the first message must be hello, not {type(hello).__name__.lower()}")
        if not is_understood(hello.protocol):
            raise ProtocolError(
                f"the notebook speaks protocol {hello.protocol} (jupyter_gpu_release {hello.version or 'unknown'}), "
                f"this gateway protocol {PROTOCOL} ({self._service.health().version})",
                hint="install the same version of jupyter_gpu_release on both sides, or versions that are one apart",
            )
        if self._caller.is_assistant and not hello.session.startswith(f"{ASSISTANT}-"):
            raise ForbiddenError(
                "an assistant's token opens no session of a notebook", hint=f"use a token of {self._caller.user}'s own"
            )
        if self._caller.sweep and hello.session != driver_session(self._caller.sweep):
            raise ForbiddenError("the token of a sweep opens no other session", hint=f"it is {self._caller.sweep}'s")
        client = self._socket.client
        self.is_direct = client is not None and hello.here == f"{client.host} {client.port}"
        self._session = await self._service.sessions.attach(hello.session, self._caller.user, self)
        self._answer(encode(await self._service.welcome(self._caller)))
        for run, after in hello.resume.items():
            self._subscribe(Subscribe(run, after))

    async def _refuse_connection(self, error: GpuReleaseError) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._socket.send_bytes(encode(Refused("", error.code, error.message, error.hint)))
        await self._close_socket(1008)

    # ----------------------------------------------------------------------------------------- read
    async def _next(self) -> ClientMessage:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        data = message.get("bytes")
        if data is None:
            raise RequestError("messages are binary (msgpack)")
        return message_of(data)

    async def _read(self) -> None:
        assert self._session is not None
        while True:
            try:
                message = await self._next()
            except WebSocketDisconnect:
                return
            except RefusedMessageError as error:
                self._service.sessions.on_message(self._session)
                await self._wait_for_turn()
                self._refuse(error.run, error)
                continue
            except RequestError as error:
                self._fault = error
                return
            self._service.sessions.on_message(self._session)
            await self._wait_for_turn()
            if isinstance(message, Bye):
                self._said_bye = True
                return
            await self._handle(message)

    async def _wait_for_turn(self) -> None:
        """Let what a user sends beyond the limit wait, as on a slow line: nothing is lost, in whatever version."""
        now_s = time.monotonic()
        turn_s = now_s + self._turn_of_message(now_s)
        if turn_s > now_s and not self._had_to_wait:
            self._had_to_wait = True
            detail = "more messages than the limit: each waits for its turn"
            self._service.audit.write_entry(self._caller, "session", result=TooManyRequestsError.code, detail=detail)
        while (rest_s := turn_s - time.monotonic()) > 0:
            self._give_sign()
            await asyncio.sleep(min(rest_s, _SIGN_S))
        await asyncio.sleep(0)  # others have a turn between two messages of a crowd

    def _give_sign(self) -> None:
        now_s = time.monotonic()
        if now_s - self._sign_s >= _SIGN_S:
            self._sign_s = now_s
            self._answer(encode(Heartbeat()))  # echoes none of the client's, so it acknowledges nothing

    def _echo(self, data: bytes) -> bytes | None:
        """Echo a heartbeat, unless they come in crowds; whatever else came is for the reader.

        It hears of an interrupt only once the submission before is taken in, which may wait for a node: no longer then.
        """
        now_s = time.monotonic()
        if now_s - self._echoed_s < _BEAT_S and self._submitting is None:
            return None
        with contextlib.suppress(*MALFORMED):
            message = decode(data, ClientMessage)
            if isinstance(message, Signal):
                self._stop_waiting(message.run)
            if now_s - self._echoed_s < _BEAT_S:
                return None
            if isinstance(message, Heartbeat) and self._session is not None:
                self._service.sessions.on_message(self._session)
                self._echoed_s = now_s
                return encode(message)
        return None

    def _stop_waiting(self, run: str) -> None:
        if self._submitting is not None and self._submitting[0] == run and self._service.why_no_agent():
            self._submitting[1].cancel()

    async def _handle(self, message: ClientMessage) -> None:
        if isinstance(message, Heartbeat):
            self._answer(encode(message))
            return
        run = message.request.run if isinstance(message, Submit) else getattr(message, "run", "")
        try:
            if isinstance(message, Submit):
                await self._submit(message)
            elif isinstance(message, Signal):
                self._signal(message)
            elif isinstance(message, Supply):
                self._supply(message)
            elif isinstance(message, Detach):
                await self._service.detach(self._caller, run)
            elif isinstance(message, Subscribe):
                self._subscribe(message)
        except GpuReleaseError as error:
            self._refuse(run, error)

    async def _submit(self, message: Submit) -> None:
        assert self._session is not None
        request = msgspec.structs.replace(message.request, session=self._session.session)
        record = await self._taken_in(request)
        self._spawn(self._accept(record))  # many in a row are committed together

    async def _taken_in(self, request: RunRequest) -> RunRecord:
        """Give signs of life while that takes long (no node has answered yet): it must not look like silence."""
        task = asyncio.ensure_future(self._service.submit(self._caller, request))
        self._submitting = request.run, task
        try:
            while not (await asyncio.wait([task], timeout=_SIGN_S))[0]:
                self._give_sign()
            if task.cancelled():
                raise RunCancelledError(f"interrupted before it was queued: {self._service.why_no_agent()}")
            return task.result()
        finally:
            self._submitting = None
            task.cancel()

    async def _accept(self, record: RunRecord) -> None:
        try:
            await self._service.committed(record)
        except GpuReleaseError as error:
            self._refuse(record.run, error)
            return
        view = self._service.visible(self._caller, record.view)
        self._answer(encode(Accepted(view)))
        if not self._is_detached:
            self._follow(Subscription(self._service, self._caller, record, 0, view.seq))

    def _refuse(self, run: str, error: GpuReleaseError) -> None:
        self._answer(encode(Refused(run, error.code, error.message, error.hint)))

    def _signal(self, message: Signal) -> None:
        record = self._service.run_for(self._caller, message.run, Act.CHANGE)
        if message.id in record.signals:
            return
        record.signals |= {message.id} - {""}
        kill = message.signal == "kill"
        reason: str | Reason = Reason(message.signal) if message.signal == PRUNED else "killed" if kill else INTERRUPTED
        self._service.lifecycle.hear(record, Cancel(reason, kill, gives_up=False))

    def _supply(self, message: Supply) -> None:
        record = self._service.run_for(self._caller, message.run, Act.SUPPLY)
        if self._session is not None and record.view.session == self._session.session:
            self._service.fetches.supply(record, message)

    def _subscribe(self, message: Subscribe) -> None:
        try:
            record = self._service.run_for(self._caller, message.run)
            if message.adopt and self._session is not None:
                self._service.adopt(self._caller, self._session.session, message.run)
        except GpuReleaseError as error:
            self._refuse(message.run, error)
            return
        self._follow(Subscription(self._service, self._caller, record, message.after))

    def _follow(self, follower: Subscription) -> None:
        """Follow a run from now on, in place of an earlier follower of the same run."""
        run = follower.record.run
        if self._session is not None and follower.record.view.session != self._session.session:
            self._service.holds.hold_results(self._session.session, run)
        earlier = self._followers.get(run)
        if earlier is None:
            watch = partial(self._mark, run)
            self._watches[run] = watch
            follower.record.watchers.add(watch)
        self._followers[run] = follower
        self._mark(run)

    # ---------------------------------------------------------------------------------------- write
    def _mark(self, run: str) -> None:
        self._dirty[run] = None
        self._wake.set()

    def _answer(self, data: bytes) -> None:
        self._answers.append(data)
        self._wake.set()
        if len(self._answers) > _MOST_ANSWERS:
            self._over.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._answers:
                    await self._socket.send_bytes(self._answers.popleft())
                while self._dirty and not self._answers:
                    run = next(iter(self._dirty))
                    del self._dirty[run]
                    await self._bring_up_to_date(run)
                if self._answers:
                    self._wake.set()
        except (WebSocketDisconnect, RuntimeError):  # Starlette raises RuntimeError for a socket that is closed
            return

    async def _bring_up_to_date(self, run: str) -> None:
        follower = self._followers[run]
        await follower.catch_up(self._socket.send_bytes)
        if follower.record.state.is_terminal and follower.seq == follower.record.view.seq and run not in self._dirty:
            self._unfollow(run)

    def _unfollow(self, run: str) -> None:
        follower = self._followers.pop(run, None)
        watch = self._watches.pop(run, None)
        if follower is not None and watch is not None:
            follower.record.watchers.discard(watch)

    # ------------------------------------------------------------------------------------------ end
    def _detach(self) -> None:
        self._is_detached = True
        for run in list(self._followers):
            self._unfollow(run)
        if self._session is not None:
            self._service.sessions.detach(self._session, self, said_bye=self._said_bye)

    async def _close_socket(self, code: int) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            await asyncio.wait_for(self._socket.close(code), 1.0)


class RefusedMessageError(RequestError):
    """A message that was understood but for a value that cannot be; it is about ``run``."""

    def __init__(self, message: str, run: str) -> None:
        super().__init__(message, hint="see /openapi.json for what is allowed")
        self.run = run


def message_of(data: bytes) -> ClientMessage:
    """A session's message.

    Raises :class:`RequestError`; as :class:`RefusedMessageError` where only a value of a run's message is at fault.
    """
    try:
        parsed: ClientMessage = decode(data, ClientMessage)
    except MALFORMED as error:
        if run := _run_of(data):
            raise RefusedMessageError(f"refused: {error}", run) from error
        raise RequestError(f"not a message of this protocol: {error}") from error
    return parsed


class _Named(msgspec.Struct):
    """A message as far as it says what run it is about."""

    run: str = ""
    request: _Named | None = None


def _run_of(data: bytes) -> str:
    with contextlib.suppress(*MALFORMED):
        named = decode(data, _Named)
        return named.run or (named.request.run if named.request is not None else "")
    return ""
