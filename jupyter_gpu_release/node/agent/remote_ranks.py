"""Ranks of other nodes over TCP.

The leader's agent listens; whoever lends connects once per rank and proves that the gateway sent it (an HMAC over the
leader's nonce, with the run's secret). From then on the connection *is* the line between agent and supervisor: its
end tells each side of the other's death, over nodes as on one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ...errors import ClusterError, GpuReleaseError
from ...protocol.config import UnixUser
from ...protocol.node import AttemptId, JoinOrder, StartOrder
from ...protocol.wire import decode, encode
from ..gang.layout import HeldPorts, RemoteRankHello
from ..ipc.frames import HEAD_BYTES, Kind, KindsSeen
from ..supervisor.agent_connection import Pair
from .fork_server import ForkServer
from .fork_servers import ForkServers
from .gpu_use import UseMeter

if TYPE_CHECKING:
    from .run import RunOnNode

log = logging.getLogger(__name__)
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_HELLO_S = 10.0
_MOST_HELLO_BYTES = 1 << 16
#: the leader may get its order a little later than we get ours
_AGAIN_S, _TRIES = 0.02, 1500
#: a remote rank without its GPUs after this will never have them
_GRANT_S = 60.0
#: how long a gang that begins again waits for ranks that were lent to its earlier try
_LEFT_S = 5.0
#: for the driver to clear the GPUs: less than the gateway waits for a node that lends
_CLEAR_S = 3.0
#: for the leader to hear a rank's last word, as a supervisor waits for its agent
_HEARD_S = 10.0
#: of making the processes
_FORK_TRIES = 3


class RemoteRankListener:
    """The leader's side: one listener for all gangs, opened when the first one spans nodes."""

    def __init__(self, address: str, find: Callable[[AttemptId], RunOnNode | None]) -> None:
        self._address = address
        self._find = find
        self._listener: asyncio.Server | None = None

    async def listen(self) -> tuple[str, int]:
        """Listen for other nodes' agents; returns the address and port that they connect to."""
        if self._listener is None:
            self._listener = await asyncio.start_server(self._on_connect, self._address, 0, limit=1 << 20)
        port: int = self._listener.sockets[0].getsockname()[1]
        return self._address, port

    def close(self) -> None:
        """Nobody can connect any more."""
        if self._listener is not None:
            self._listener.close()

    async def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = False
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.MsgspecError):
            lent = await asyncio.wait_for(self._check(reader, writer), _HELLO_S)
            run = self._find(lent.attempt_id) if lent is not None else None
            accepted = lent is not None and run is not None and run.gang.attach_rank(lent, reader, writer)
        if not accepted:
            writer.close()

    async def _check(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> RemoteRankHello | None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        writer.write(nonce)
        proof = await reader.readexactly(_PROOF_BYTES)
        size = int.from_bytes(await reader.readexactly(4), "little")
        if size > _MOST_HELLO_BYTES:
            return None
        hello = await reader.readexactly(size)
        lent = decode(hello, RemoteRankHello)
        run = self._find(lent.attempt_id)
        secret = run.order.gang.secret if run is not None else ""
        return lent if secret and hmac.compare_digest(proof, _proof(secret, nonce, hello)) else None


class _Passed:
    """A rank that is lent, what it said, and its line to the leader once there is one.

    ``watch``: looks at its supervisor, where that is its user's.
    """

    def __init__(self, pair: Pair, watch: asyncio.Task[None] | None) -> None:
        self.pair = pair
        self.watch = watch
        self.said = KindsSeen()
        self.line: Line | None = None


class RankForwarder:
    """Carries out one :class:`JoinOrder`."""

    def __init__(self, order: JoinOrder, servers: ForkServers, address: str, meter: UseMeter | None) -> None:
        self._order = order
        self._servers = servers
        self._meter = meter
        self._address = address
        self._granted: asyncio.Future[list[str] | None] = asyncio.get_event_loop().create_future()
        self._ended = asyncio.Event()
        self._is_abandoned = False
        self._using: StartOrder | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._hanging_up: set[asyncio.Task[None]] = set()

    @property
    def is_abandoned(self) -> bool:
        """Tell if its ranks are being ended."""
        return self._is_abandoned

    @property
    def has_ended(self) -> bool:
        """Tell if none of its ranks is left."""
        return self._ended.is_set()

    def grant(self, gpu_ids: list[str]) -> None:
        """The lease is there, with these accelerators on this node."""
        if not self._granted.done():
            self._granted.set_result(gpu_ids)

    def abandon(self) -> None:
        """The lease came to nothing, or the run is over: end the ranks."""
        self._is_abandoned = True
        if not self._granted.done():
            self._granted.set_result(None)
        for task in self._passing:
            task.cancel()

    async def wait_until_ended(self) -> None:
        """Return when none of the ranks is left."""
        await self._ended.wait()

    async def run_to_end(self) -> None:
        """Run until the last rank has ended; never raises (the leader sees lines that do not come, or end)."""
        try:
            with contextlib.suppress(GpuReleaseError, OSError, TimeoutError, asyncio.CancelledError):
                await self._lend()
        finally:
            self._ended.set()

    async def hang_up(self) -> None:
        """Return when no line to the leader is left: its ranks have ended, and what they said was heard."""
        await asyncio.gather(*self._hanging_up)

    async def _lend(self) -> None:
        for tries_left in reversed(range(_FORK_TRIES)):
            server = await self._servers.ready_server(fresh=self._order.fresh, needs=self._order.needs, is_gang=True)
            try:
                await asyncio.wait([self._granted], timeout=_GRANT_S)
                if self._granted.done() and (gpu_ids := self._granted.result()) is not None:
                    self._watch(gpu_ids)
                    await self._lend_of(server, gpu_ids)
                return
            except OSError:  # the fork server died, or could not make a process
                if not tries_left or self._passing:
                    raise
            finally:
                await asyncio.gather(*self._ending, return_exceptions=True)
                self._servers.release_server(server)
                await self._until_clear()

    def _watch(self, gpu_ids: list[str]) -> None:
        self._using = StartOrder(
            self._order.run, b"", "", self._order.gpus, gpu_ids=gpu_ids, attempt=self._order.attempt
        )
        if self._meter is not None:
            self._meter.begin_sampling(self._using)

    async def _until_clear(self) -> None:
        if self._meter is not None and self._using is not None:
            await self._meter.wait_until_clear(self._using, _CLEAR_S)
            await self._meter.end_sampling(self._using)

    async def _lend_of(self, server: ForkServer, gpu_ids: list[str]) -> None:
        """Raises ``OSError`` when the processes cannot be made: then there are none."""
        pairs = list[Pair]()
        with HeldPorts(self._address, self._order.ranks) as ports:
            try:
                while len(pairs) < self._order.ranks and not self._is_abandoned:
                    pairs.append(await server.take_pair())
            finally:
                if len(pairs) < self._order.ranks or self._is_abandoned:
                    for pair in pairs:
                        pair.close()
            if self._is_abandoned:
                return
            for local, (pair, port) in enumerate(zip(pairs, ports.numbers, strict=True)):
                lent = RemoteRankHello(
                    self._order.run, self._order.node, local, gpu_ids, self._address, port, self._order.attempt
                )
                watch = asyncio.create_task(pair.watch_supervisor()) if self._order.owner is not None else None
                passed = _Passed(pair, watch)
                passing = asyncio.create_task(self._pass_through(passed, lent))
                # not its own `finally`: a task may be cancelled before its first step
                passing.add_done_callback(partial(self._end_soon, passed))
                self._passing.add(passing)
            await asyncio.gather(*self._passing, return_exceptions=True)

    async def _pass_through(self, passed: _Passed, lent: RemoteRankHello) -> None:
        pair = passed.pair
        passed.line = await self._reach_leader(encode(lent))
        if passed.line is not None:
            leader, to_leader = passed.line
            down = asyncio.create_task(_copy(leader, pair.writer, pair.writer.close))
            try:  # ends with the supervisor, when no descendant is left
                await _copy(pair.reader, to_leader, to_leader.write_eof, passed.said)
            finally:
                down.cancel()

    def _end_soon(self, passed: _Passed, _passing: asyncio.Task[None]) -> None:
        """In a task of its own, which nobody cancels: until the rank is gone the GPUs are held."""
        self._ending.add(asyncio.create_task(self._end(passed)))

    async def _end(self, passed: _Passed) -> None:
        """The supervisor ends the rank, and itself; where it was killed we do. Then the leader hears of it."""
        pair, line = passed.pair, passed.line
        with contextlib.suppress(OSError):
            pair.writer.write_eof()
            while data := await pair.reader.read(1 << 16):
                passed.said.feed(data)
        if passed.watch is not None:
            passed.watch.cancel()
        if Kind.RELEASED not in passed.said.kinds:
            await pair.end_processes(self._order.run, log.error)
        elif self._order.owner is not None:  # a user's process has said it
            await pair.end_rank(log.error)
        pair.close()
        if line is not None:  # the GPUs do not wait for it
            self._hanging_up.add(asyncio.create_task(_close_when_heard(*line)))

    async def _reach_leader(self, hello: bytes) -> Line | None:
        """Connect and be accepted: the leader's first word is the rank's order."""
        for _ in range(_TRIES):
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(self._order.address, self._order.port, limit=1 << 20)
                nonce = await reader.readexactly(_NONCE_BYTES)
                writer.write(_proof(self._order.secret, nonce, hello) + len(hello).to_bytes(4, "little") + hello)
                head = await reader.readexactly(HEAD_BYTES)
                return _with_head(reader, head), writer
            await asyncio.sleep(_AGAIN_S)
        return None


class RankForwarders:
    """All that this node lends, by run. ``meter``: of its GPUs, where they are real."""

    def __init__(
        self, servers_of: Callable[[str, UnixUser | None], ForkServers], address: str, meter: UseMeter | None = None
    ) -> None:
        """``servers_of``: the fork servers in an environment, by its digest and whose they are."""
        self._servers_of = servers_of
        self._address = address
        self._meter = meter
        #: attempt → what is lent to its gang
        self.by_attempt: dict[AttemptId, RankForwarder] = {}

    def new_forwarder(self, order: JoinOrder) -> RankForwarder | None:
        """A new remote rank to be run; None when it is known already."""
        known = self.by_attempt.get(order.attempt_id)
        if known is not None and not known.has_ended:
            return None
        servers = self._servers_of(order.environment, order.owner)
        forwarder = self.by_attempt[order.attempt_id] = RankForwarder(order, servers, self._address, self._meter)
        return forwarder

    async def wait_until_left(self, attempt_id: AttemptId) -> None:
        """Wait for the ranks that were lent to an earlier try of this attempt.

        Raises :class:`ClusterError` when they take long: the gang waits again then, not for ranks that never come.
        """
        known = self.by_attempt.get(attempt_id)
        if known is None or not known.is_abandoned:
            return
        try:
            await asyncio.wait_for(known.wait_until_ended(), _LEFT_S)
        except TimeoutError:
            raise ClusterError(f"the ranks lent to an earlier try of run {attempt_id.run} have not ended yet") from None

    async def run_to_end(self, attempt_id: AttemptId, forwarder: RankForwarder) -> None:
        """Run until its last rank has ended, and is forgotten; then until the leader has heard that."""
        await forwarder.run_to_end()
        if self.by_attempt.get(attempt_id) is forwarder:
            del self.by_attempt[attempt_id]
        await forwarder.hang_up()

    def abandon(self, attempt_id: AttemptId) -> None:
        """End a remote rank."""
        if attempt_id in self.by_attempt:
            self.by_attempt[attempt_id].abandon()

    async def end_ranks(self, attempt_id: AttemptId) -> None:
        """End a remote rank; returns when its ranks are gone."""
        forwarder = self.by_attempt.get(attempt_id)
        if forwarder is not None:
            forwarder.abandon()
            await forwarder.wait_until_ended()


def _with_head(reader: asyncio.StreamReader, head: bytes) -> asyncio.StreamReader:
    """Put back what was read to see that there is an answer."""
    reader._buffer[:0] = head  # type: ignore[attr-defined]
    return reader


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: Callable[[], None], said: KindsSeen | None = None
) -> None:
    """Copy all that comes, then ``end`` the other side."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 18):
            if said is not None:
                said.feed(data)
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        end()


async def _close_when_heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Nothing more is said; close when the leader closes its end, or after :data:`_HEARD_S`.

    Else a command that it is just sending would break the line, and what it has not read yet would be lost with it.
    """
    try:
        with contextlib.suppress(OSError):
            writer.write_eof()
            async with asyncio.timeout(_HEARD_S):
                while await reader.read(1 << 16):
                    pass
    finally:
        writer.close()


def _proof(secret: str, nonce: bytes, hello: bytes) -> bytes:
    return hmac.digest(secret.encode(), nonce + hello, hashlib.sha256)
