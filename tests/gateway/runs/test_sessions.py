"""Kernels that say good-bye, let go, read slowly, connect twice: what becomes of their runs. More: test_grace.py."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from feeds import Reading
from ray_bed import GatewayBed, request
from sqlalchemy.engine import Connection, Engine
from websockets.sync.client import ClientConnection, connect

from jupyter_gpu_release.client.feed import ConnectionLost
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import ForbiddenError
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.database import open_ledger
from jupyter_gpu_release.gateway.db.rows import StoredSession
from jupyter_gpu_release.gateway.runs.sessions import FRESH_S, LOST_KEPT_S, SessionTable, judge_closing
from jupyter_gpu_release.protocol.session import PROTOCOL, Accepted, GatewayMessage, Heartbeat, Hello, Submit, Update
from jupyter_gpu_release.protocol.wire import decode, encode


def test_what_a_closed_socket_means() -> None:
    assert judge_closing(100.0, said_bye=True, is_direct=False) == "ended"
    assert judge_closing(0.0, said_bye=False, is_direct=False) == "grace"
    assert judge_closing(FRESH_S, said_bye=False, is_direct=False) == "grace"
    assert judge_closing(FRESH_S + 0.1, said_bye=False, is_direct=False) == "lost"
    assert judge_closing(FRESH_S + 0.1, said_bye=False, is_direct=True) == "grace"  # its own machine closed it
    assert judge_closing(1000.0, said_bye=False, is_direct=True) == "lost"  # our system gave it up


class _Wire:
    def __init__(self, *, is_direct: bool) -> None:
        self.is_direct = is_direct
        self.closed = ""

    async def close(self, reason: str) -> None:
        self.closed = reason


@pytest.mark.asyncio
async def test_a_session_is_its_users_and_its_newest_connections() -> None:
    nothing: Any = SimpleNamespace(write=lambda *_: None)
    table = SessionTable(nothing, 0.01, nothing)
    first, second, foreign = (_Wire(is_direct=True) for _ in range(3))
    session = await table.attach("k", "ann", first)
    with pytest.raises(ForbiddenError, match="belongs to another user"):
        await table.attach("k", "eve", foreign)
    assert (session.user, session.wire, first.closed) == ("ann", first, "")
    assert await table.attach("k", "ann", second) is session
    assert (session.wire, first.closed.startswith("replaced"), second.closed) == (second, True, "")
    table.detach(session, first, said_bye=True)  # the end of the earlier one is heard late
    assert (session.wire, session.state, table.open_ids()) == (second, "live", {"k"})
    table.detach(session, second, said_bye=False)
    assert (session.state, table.is_live("k"), table.may_answer("k")) == ("grace", False, True)
    await table.attach("k", "ann", first)
    await asyncio.sleep(0.03)
    assert session.state == "live", "it was back within its grace"


@pytest.mark.asyncio
@pytest.mark.parametrize("is_direct", [True, False])
async def test_a_kernel_that_is_killed_when_its_heartbeat_is_old_is_ended(is_direct: bool) -> None:
    """Stopped, or deep in C code; through a tunnel nobody could tell it from a closed lid."""
    ended: list[str] = []
    nothing: Any = SimpleNamespace(write=lambda *_: None)
    listener: Any = SimpleNamespace(on_session_lost=lambda _: None, on_session_ended=ended.append)
    table = SessionTable(nothing, 0.01, listener)
    wire = _Wire(is_direct=is_direct)
    session = await table.attach("k", "ann", wire)
    session.heard_at -= 20
    await table.check_silence()
    assert (session.state, bool(wire.closed)) == ("lost", not is_direct)
    if is_direct:
        table.on_message(session)
        assert session.state == "live"  # it was only stopped
        session.heard_at -= 20
        await table.check_silence()
    table.detach(session, wire, said_bye=False)
    assert session.state == ("grace" if is_direct else "lost")
    await asyncio.sleep(0.05)
    assert ended == (["k"] if is_direct else [])


@pytest.mark.asyncio
async def test_a_client_that_stays_away_is_forgotten_however_often_the_gateway_restarts(tmp_path: Path) -> None:
    """Its results are held from when it was last heard of, not from the restart; its end is in no doubt after that."""
    engine = open_ledger(tmp_path / "ledger.sqlite")
    ledger: Any = SimpleNamespace(write=lambda work: _commit(engine, work))
    listener: Any = SimpleNamespace(on_session_lost=lambda _: None, on_session_ended=lambda _: None)
    lately, long_ago = time.time() - 60, time.time() - LOST_KEPT_S - 60
    for name, state, since_s in (("a", "lost", lately), ("b", "lost", long_ago), ("c", "ended", long_ago)):
        stored = StoredSession(name, "ann", state, since_s)
        ledger.write(lambda link, stored=stored: database.put_session(link, stored))
    with engine.connect() as connection:
        table = SessionTable(ledger, 0.0, listener)
        table.restore(database.open_sessions(connection))
    assert table.open_ids() == {"a", "b"}
    await asyncio.sleep(0.01)  # the grace is over
    await table.check_silence()
    assert table.open_ids() == {"a"}
    assert not table.may_answer("a")
    with engine.connect() as connection:
        assert database.open_sessions(connection) == [StoredSession("a", "ann", "lost", lately)]
    engine.dispose()


def _commit(engine: Engine, work: Callable[[Connection], None]) -> None:
    with engine.begin() as connection:
        work(connection)


def test_a_slow_good_bye_is_heard(gateway: GatewayBed, until) -> None:
    """The connection is not closed before it has been said."""
    asked = request("hold", "slow-to-go")
    session = GatewaySession(gateway.target, "slow-to-go")
    link, leaves = session._send_queue._link, threading.Event()

    class SlowLink:
        async def send(self, data: bytes) -> None:
            await asyncio.sleep(1.0)  # time for it to close too early
            await link().send(data)

        async def close(self) -> None:
            await link().close()

    session._send_queue._link = lambda: SlowLink() if leaves.is_set() else link()
    session.connect(60.0)
    Reading(session.submit(asked)).state("running")
    leaves.set()
    left_at = time.time()
    session.close(60.0)
    with gateway.rest() as client:
        until(lambda: client.run(asked.run).state == "cancelled", "the run's end")
        assert client.run(asked.run).finished_at - left_at < gateway.config.reconnect_grace_s


def test_a_newer_connection_of_a_session_takes_its_place(gateway: GatewayBed, open_session) -> None:
    asked = request("print 1\nhold", "twice")
    first = open_session("twice")
    reading = Reading(first.submit(asked))
    reading.event(1)  # it is at the gateway, and so is the word before it: it runs
    first._over = lambda: True  # its own reconnecting would go on for ever
    url = gateway.url.replace("http", "ws", 1) + "/v1/session"
    with connect(url, additional_headers={"Authorization": f"Bearer {gateway.token}"}, proxy=None) as second:
        second.send(encode(Hello(PROTOCOL, "twice", "", {asked.run: 0})))
        kinds = [type(decode(second.recv(timeout=60), GatewayMessage)).__name__ for _ in range(3)]
        assert kinds == ["Welcome", "Events", "Update"]
        reading.until(lambda item: isinstance(item, ConnectionLost))
    gateway.let_go(asked.run)


@pytest.mark.thorough
def test_a_slow_client_misses_nothing_and_costs_no_memory(gateway: GatewayBed, until) -> None:
    """The client reads nothing while 200,000 events (20 MiB) go by, then all of them."""
    url = gateway.url.replace("http", "ws", 1) + "/v1/session"
    asked = request("print 1000\n" * 200, "slow")
    with (
        connect(
            url, additional_headers={"Authorization": f"Bearer {gateway.token}"}, proxy=None, max_size=None, max_queue=1
        ) as link,
        _beating(link),
    ):
        link.send(encode(Hello(PROTOCOL, "slow")))
        link.send(encode(Submit(asked)))
        with gateway.rest() as client:
            pid = client.health().pid
            before = _resident_bytes(pid)
            until(lambda: asked.run in [row.run for row in client.runs().runs], "it is submitted")
            until(lambda: client.run(asked.run).state == "succeeded", "the run's end")
            grown = _resident_bytes(pid) - before
        assert grown < 40 << 20
        numbers: list[int] = []
        accepted = False
        while True:
            message = decode(link.recv(timeout=60), GatewayMessage)
            accepted = accepted or isinstance(message, Accepted)
            if isinstance(message, Update) and message.view.state == "succeeded":
                break
            numbers += [event.n for event in getattr(message, "events", [])]
    assert accepted
    assert numbers == list(range(1, 200_001))
    assert message.after_event == 200_000  # so that no other subscription takes it for an end before its output


@contextmanager
def _beating(link: ClientConnection) -> Iterator[None]:
    """Heartbeats, as from a kernel that is busy: without them contact would be lost after 15 s."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(1.0):
            link.send(encode(Heartbeat(time.time())))

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_detached_run_goes_on_without_its_kernel(gateway: GatewayBed, until) -> None:
    """One was submitted so, one was let go later; a third one ends with the kernel."""
    asked = [request("hold", "leaver", detach=True), request("hold", "leaver"), request("hold", "leaver")]
    session = GatewaySession(gateway.target, "leaver")
    session.connect()
    readings = [Reading(session.submit(each)) for each in asked]
    for reading in readings:
        reading.state("running")
    session.detach(asked[1].run)
    readings[1].until(lambda item: isinstance(item, Update) and item.view.detached)
    session.close()
    with gateway.rest() as client:
        until(lambda: client.run(asked[2].run).state == "cancelled", "the end of the one that is attached")
        for each in asked[:2]:
            row = client.run(each.run)
            assert (row.state, row.detached) == ("running", True)
            gateway.let_go(each.run)
            until(lambda each=each: client.run(each.run).state == "succeeded", "its own end")


def test_two_places_of_a_notebook_follow_one_run(gateway: GatewayBed, open_session) -> None:
    asked = request("print 3\nhold\nprint 2", "twofold")
    session = open_session("twofold")
    first = Reading(session.submit(asked))
    first.event(3)
    second = Reading(session.follow(asked.run))
    second.event(3)
    gateway.let_go(asked.run)
    assert [reading.end().state for reading in (first, second)] == ["succeeded"] * 2
    assert first.numbers() == second.numbers() == [1, 2, 3, 4, 5]


def test_a_run_that_is_not_there_is_not_detached(gateway: GatewayBed, open_session) -> None:
    session = open_session("nobody")
    reading = Reading(session.follow("20000101-000000-00000000"))
    session.detach("20000101-000000-00000000")
    assert reading.refused().code == "no_such_run"
