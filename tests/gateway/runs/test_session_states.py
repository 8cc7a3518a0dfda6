"""Kernels that come, fall silent, come back and end: which of them are waited for, and who is told."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.gateway.db.rows import StoredSession
from jupyter_gpu_release.gateway.runs.sessions import LOST_KEPT_S, SILENCE_S, Session, SessionTable


class _Wire:
    def __init__(self, *, is_direct: bool = False) -> None:
        self.is_direct = is_direct
        self.closed = ""

    async def close(self, reason: str) -> None:
        self.closed = reason


class _Bed:
    """A table whose grace is over when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended: list[str] = []
        self.lost: list[str] = []
        ledger: Any = SimpleNamespace(write=lambda *_: None)
        listener: Any = SimpleNamespace(on_session_ended=self.ended.append, on_session_lost=self.lost.append)
        self.table = SessionTable(ledger, 3600.0, listener)
        self._patch = monkeypatch

    async def connect(self, name: str = "k", *, is_direct: bool = False) -> tuple[Session, _Wire]:
        wire = _Wire(is_direct=is_direct)
        return await self.table.attach(name, "ann", wire), wire

    def silent_for(self, session: Session, seconds: float) -> None:
        session.heard_at = time.monotonic() - seconds

    def grace_is_over(self, session: Session) -> None:
        assert session.timer is not None
        session.timer.cancel()
        self.table._grace_over(session)

    def seen(self, name: str = "k") -> tuple[bool, bool, bool]:
        """It is open; live; somebody may answer."""
        return self.table.is_open(name), self.table.is_live(name), self.table.may_answer(name)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> _Bed:
    return _Bed(monkeypatch)


@pytest.mark.asyncio
async def test_a_kernel_that_ended_is_waited_for_and_then_ends_its_runs(bed: _Bed) -> None:
    session, wire = await bed.connect()
    assert bed.seen() == (True, True, True)
    bed.table.detach(session, wire, said_bye=False)
    assert (session.state, bed.seen(), bed.ended) == ("grace", (True, False, True), [])
    bed.grace_is_over(session)
    assert (session.state, bed.seen(), bed.ended, bed.lost) == ("ended", (False, False, False), ["k"], [])


@pytest.mark.asyncio
async def test_a_kernel_that_says_good_bye_is_not_waited_for(bed: _Bed) -> None:
    session, wire = await bed.connect()
    bed.table.detach(session, wire, said_bye=True)
    assert (session.state, session.timer, bed.ended) == ("ended", None, ["k"])


@pytest.mark.asyncio
async def test_a_kernel_that_is_back_within_the_grace_ends_nothing(bed: _Bed) -> None:
    session, wire = await bed.connect()
    bed.table.detach(session, wire, said_bye=False)
    again, _ = await bed.connect()
    assert again is session
    assert (session.state, session.timer, bed.ended) == ("live", None, [])
    bed.table.detach(session, wire, said_bye=True)  # of the connection before
    assert (session.state, bed.ended) == ("live", [])


@pytest.mark.asyncio
async def test_contact_that_is_lost_ends_no_run_and_is_told_after_the_grace(bed: _Bed) -> None:
    session, wire = await bed.connect()
    bed.silent_for(session, SILENCE_S - 5.0)
    await bed.table.check_silence()
    assert session.state == "live"
    bed.silent_for(session, SILENCE_S + 1.0)
    await bed.table.check_silence()
    assert (session.state, session.wire, wire.closed, bed.seen()) == ("lost", None, "silent", (True, False, True))
    bed.table.detach(session, wire, said_bye=False)
    bed.grace_is_over(session)
    assert (session.state, bed.lost, bed.ended, bed.seen()) == ("lost", ["k"], [], (True, False, False))
    again, _ = await bed.connect()
    assert (again, bed.seen()) == (session, (True, True, True))


@pytest.mark.asyncio
async def test_a_direct_connection_stays_open_while_it_may_still_tell(bed: _Bed) -> None:
    session, wire = await bed.connect(is_direct=True)
    bed.silent_for(session, SILENCE_S + 1.0)
    await bed.table.check_silence()
    assert (session.state, session.wire, wire.closed) == ("lost", wire, "")
    bed.table.on_message(session)
    assert (session.state, session.timer, session.heartbeat_age_s() < 60.0) == ("live", None, True)
    bed.silent_for(session, 3600.0)
    await bed.table.check_silence()
    assert (session.wire, wire.closed) == (None, "silent")


@pytest.mark.asyncio
async def test_after_a_restart_kernels_get_the_grace_and_a_lost_one_is_no_younger(bed: _Bed) -> None:
    since_s = time.time() - 1000.0
    bed.table.restore([StoredSession("k", "ann", "live", since_s), StoredSession("away", "bob", "lost", since_s)])
    states = {name: (found.state, found.user) for name, found in bed.table._sessions.items()}
    assert states == {"k": ("grace", "ann"), "away": ("lost", "bob")}
    assert bed.table._sessions["away"].since_s == since_s
    assert bed.table._sessions["k"].since_s > since_s
    for name in ("k", "away"):
        bed.grace_is_over(bed.table._sessions[name])
    assert (bed.ended, bed.lost) == (["k"], ["away"])
    assert (bed.table.open_ids(), bed.table.belongs_to("away", "bob"), bed.table.belongs_to("away", "ann")) == (
        {"away"},
        True,
        False,
    )


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("state", "age_s", "stays"),
    [
        ("live", 10 * LOST_KEPT_S, True),
        ("ended", 3500.0, True),
        ("ended", 3700.0, False),
        ("lost", LOST_KEPT_S - 60.0, True),
        ("lost", LOST_KEPT_S + 60.0, False),
    ],
)
async def test_what_nobody_comes_back_to_is_forgotten(bed: _Bed, state: str, age_s: float, stays: bool) -> None:
    session, _ = await bed.connect()
    session.wire = None
    session.state, session.since_s = state, time.time() - age_s
    await bed.table.check_silence()
    assert ("k" in bed.table._sessions) is stays


@pytest.mark.asyncio
async def test_a_kernel_that_is_still_waited_for_is_not_forgotten(bed: _Bed) -> None:
    session, wire = await bed.connect()
    bed.silent_for(session, 3600.0)
    bed.table.detach(session, wire, said_bye=False)
    session.since_s = 0.0
    assert (session.state, session.timer is not None) == ("lost", True)
    await bed.table.check_silence()
    assert bed.table.is_open("k")
