"""Kernels' sessions: connected, closed (a kernel that ended gets a grace), or silent (contact lost: its runs go on).

A socket that closes while heartbeats were fresh is a kernel that ended; one that fell silent first is a network
or a lid, or a process that was stopped or too busy to speak. Of such a one a direct connection tells: only its own
machine closes that, when the process is gone. :func:`judge_closing` is that rule.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from ...errors import ForbiddenError
from ...settings.built_in import BUILT_IN
from ..db import database, usage
from ..db.rows import StoredSession
from ..db.writer import LedgerWriter

#: a heartbeat at most this old is fresh (clients send one every 5 s)
FRESH_S = 12.0
#: no heartbeat for so long on an open socket: contact is lost
SILENCE_S: float = BUILT_IN["silence_s"].default
#: a silent machine's system ends a connection by itself after a quarter of an hour at the earliest
_TELLS_S = 600.0
_ENDED_KEPT_S = 3600.0
#: a client that was not heard of for so long is forgotten, with what it held
LOST_KEPT_S = 7 * 86400.0


def judge_closing(heartbeat_age_s: float, *, said_bye: bool, is_direct: bool) -> str:
    """Judge a closed socket: ``ended`` (good-bye), ``grace`` (the kernel ended) or ``lost`` (silence first)."""
    if said_bye:
        return "ended"
    return "grace" if heartbeat_age_s <= (_TELLS_S if is_direct else FRESH_S) else "lost"


class SessionSocket(Protocol):
    """The session's socket, as far as sessions care. Used on the gateway's event loop."""

    #: nothing (a proxy, a tunnel) lies between the client's end and ours
    is_direct: bool

    async def close(self, reason: str) -> None:
        """Close it; the reader then ends."""


class Session:
    """One client, over all its connections. ``state``: ``live``, ``grace``, ``lost`` or ``ended``."""

    def __init__(self, session: str, user: str) -> None:
        self.session = session
        self.user = user
        self.state = "live"
        self.since_s = time.time()
        self.wire: SessionSocket | None = None
        self.heard_at = time.monotonic()
        self.timer: asyncio.TimerHandle | None = None

    def heartbeat_age_s(self) -> float:
        """Seconds since the client was last heard."""
        return time.monotonic() - self.heard_at


class SessionListener(Protocol):
    """Hears of kernels, on the gateway's event loop, in the middle of a change: it must neither wait nor raise."""

    def on_session_ended(self, session: str) -> None:
        """A kernel has ended, and will not come back."""

    def on_session_lost(self, session: str) -> None:
        """A kernel was silent for longer than the grace. It may come back, but nobody waits for it."""


class SessionTable:
    """All sessions. What becomes of their runs is the listener's."""

    def __init__(self, ledger: LedgerWriter, grace_s: float, listener: SessionListener) -> None:
        self._ledger = ledger
        self._grace_s = grace_s
        self._listener = listener
        self._sessions: dict[str, Session] = {}

    def restore(self, stored: list[StoredSession]) -> None:
        """Sessions of the gateway's earlier life: those that were there get the grace to come back."""
        for entry in stored:
            session = self._sessions[entry.session] = Session(entry.session, entry.user)
            if entry.state == "lost":  # a restart of ours is no sign of life
                session.state, session.since_s = entry.state, entry.since
                self._begin_grace(session)
            else:
                self._set(session, "grace")

    async def attach(self, name: str, user: str, wire: SessionSocket) -> Session:
        """A client says hello; its earlier connection, if there still is one, is closed."""
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name, user)
        if session.user != user:
            raise ForbiddenError("this session belongs to another user")
        earlier, session.wire = session.wire, wire
        session.heard_at = time.monotonic()
        self._set(session, "live")
        if earlier is not None:
            await earlier.close("replaced by a newer connection of the same session")
        return session

    def open_ids(self) -> set[str]:
        """Sessions that have not ended, and whose client was heard of in the last days."""
        return {name for name, session in self._sessions.items() if session.state != "ended"}

    def belongs_to(self, name: str, user: str) -> bool:
        """Tell if there is such a session, and it is this user's."""
        session = self._sessions.get(name)
        return session is not None and session.user == user

    def is_open(self, name: str) -> bool:
        """Tell if this session has not ended: its client is there, or may come back."""
        session = self._sessions.get(name)
        return session is not None and session.state != "ended"

    def is_live(self, name: str) -> bool:
        """Tell if this session's client is connected now."""
        session = self._sessions.get(name)
        return session is not None and session.state == "live"

    def may_answer(self, name: str) -> bool:
        """Tell if this session's client is there, or was a moment ago."""
        session = self._sessions.get(name)
        return session is not None and (session.state in ("live", "grace") or session.timer is not None)

    def on_message(self, session: Session) -> None:
        """Something arrived from the client."""
        session.heard_at = time.monotonic()
        if session.state == "lost" and session.wire is not None:
            self._set(session, "live")

    def detach(self, session: Session, wire: SessionSocket, *, said_bye: bool) -> None:
        """The connection is over (nothing happens when a newer one took its place)."""
        if session.wire is not wire:
            return
        session.wire = None
        state = judge_closing(session.heartbeat_age_s(), said_bye=said_bye, is_direct=wire.is_direct)
        if state != session.state:
            self._set(session, state)

    async def check_silence(self) -> None:
        """Contact is lost where a socket fell silent (called every few seconds); one that may still tell stays open."""
        for session in list(self._sessions.values()):
            wire, age_s = session.wire, session.heartbeat_age_s()
            if wire is None or age_s <= SILENCE_S:
                continue
            if session.state == "live":
                self._set(session, "lost")
            if not wire.is_direct or age_s > _TELLS_S:
                session.wire = None
                await wire.close("silent")
        self._forget_gone()

    # ------------------------------------------------------------------------------------- inside
    def _set(self, session: Session, state: str) -> None:
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None
        session.state, session.since_s = state, time.time()
        stored = StoredSession(session.session, session.user, state, session.since_s)
        self._ledger.write(lambda link: database.put_session(link, stored))
        if state == "ended":
            self._ledger.write(lambda link: usage.put_session_end(link, stored.session, stored.since))
            self._listener.on_session_ended(session.session)
        elif state in ("grace", "lost"):
            self._begin_grace(session)

    def _begin_grace(self, session: Session) -> None:
        session.timer = asyncio.get_running_loop().call_later(self._grace_s, self._grace_over, session)

    def _grace_over(self, session: Session) -> None:
        session.timer = None
        if session.state == "grace":
            self._set(session, "ended")
        elif session.state == "lost":
            self._listener.on_session_lost(session.session)

    def _forget_gone(self) -> None:
        now_s = time.time()
        before = {"ended": now_s - _ENDED_KEPT_S, "lost": now_s - LOST_KEPT_S}
        for session in list(self._sessions.values()):
            if session.timer is None and session.since_s < before.get(session.state, 0.0):
                del self._sessions[session.session]
        self._ledger.write(lambda link: database.drop_sessions(link, before))
