"""Fork servers that were prepared for what users' cells import, before any of these cells has a GPU.

One is a fork of the node's fork server, so only what it imports beyond that is memory of its own. It has installed
distributions only, never a notebook's own modules, so whoever needs what it has may use it. What is to be imported is
said with each run (``PrepareOrder``), and learned from what the user's cells had to import themselves.

It goes with the last session that asked for it, after a while without a run, when memory is short, when there are too
many, when packages change, and with the fork server and the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

import psutil

from ...errors import ClusterError
from ...host.background import BackgroundWork
from ...host.process_control import ForeignProcess
from ...protocol.node import PreparedInfo, PrepareOrder
from ...protocol.runs import ImportedModule
from ...settings.built_in import BUILT_IN
from ..import_witness import THREADS
from ..installed_packages import package_folders
from .fork_server import ForkServer

log = logging.getLogger(__name__)
#: pairs that stand by at each
STANDBY: int = BUILT_IN["prepared_pairs"].default
#: of one that is forked from one that is forked from one …, each of which stays
_MOST_DEPTH = 8
#: modules of one user that are remembered
_MOST_LEARNED = 200
#: sessions of which it is remembered that they have ended
_MOST_ENDED = 1000
#: so long after its last use one goes that no session holds, and one whose session's end nobody may have heard of
_UNUSED_S: float = BUILT_IN["prepared_unused_s"].default
_HELD_S = 8 * 3600.0
_LOOK_S = 5.0
#: for a fork server to fork one
_FORK_S = 30.0
#: of the machine's memory that must be free
_FREE_SHARE = 0.1
#: imports that took less in all are not worth a word
_SAID_S = 0.1
#: nor imports ahead that nobody has asked for
_WORTH_S = 0.05
_MOST_NAMED = 4


@dataclass
class Prepared:
    """One of them. ``names``: what was asked for; it has all that these import, too. ``bytes``: of memory of its own.

    ``depth``: how many of them it was forked from, one from the other.
    """

    server: ForkServer
    names: frozenset[str]
    bytes: int
    depth: int = 0
    sessions: set[str] = field(default_factory=set)
    used_s: float = field(default_factory=time.monotonic)

    def has(self, names: Iterable[str]) -> bool:
        """Tell if a cell finds all of these in it."""
        return self.names.union(self.server.modules, self.server.at_rest).issuperset(names)

    @property
    def info(self) -> PreparedInfo:
        """Its libraries, and their memory."""
        libraries = sorted({name.partition(".")[0] for name in self.names})
        return PreparedInfo(libraries, self.bytes)


class PreparedServers:
    """All of a node; all calls from the agent's event loop.

    ``base``: the fork server that they are forked from, ready; ``bind``: a new place for one to listen at.
    """

    def __init__(
        self,
        base: Callable[[], Awaitable[ForkServer]],
        bind: Callable[[], tuple[Path, socket.socket]],
        most: int,
        *,
        as_owners: bool = False,
    ) -> None:
        self._base = base
        self._bind = bind
        self._most = most
        #: who stands by is root then, and imports nothing for a user
        self._as_owners = as_owners
        self._all: list[Prepared] = []
        #: those that end when their last rank has, and the last that was forked from them
        self._leaving: list[ForkServer] = []
        #: user → modules that the user's cells had to import themselves, the first of them first
        self._learned: dict[str, dict[str, None]] = {}
        #: sessions that have ended lately: what is asked for them is nobody's
        self._ended: dict[str, None] = {}
        #: module → why it is not imported ahead, in words (empty: it cannot be imported at all)
        self._unfit: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()
        self._later = BackgroundWork()
        #: counts those that went: who knows of one then asks again
        self.gone = 0

    def __contains__(self, server: ForkServer) -> bool:
        return any(each.server is server for each in self._all)

    @property
    def info(self) -> list[PreparedInfo]:
        """Facts about each."""
        return [each.info for each in self._all]

    # ------------------------------------------------------------------------------------------- prepare
    async def prepare(self, order: PrepareOrder) -> None:
        """Return when a cell of this user that needs these modules finds them imported, as far as that can be."""
        self._ended.pop(order.session, None)  # it is back
        await self._prepare(order)

    async def _prepare(self, order: PrepareOrder) -> None:
        if not self._most:
            return
        base = await self._base()
        needs = [name for name in dict.fromkeys(order.names) if self._is_worth_it(name, base)]
        found = self._find(needs) if needs else None
        if found is None and (needs or not order.names):
            found = await self._prepare_more(order, needs)
        if needs and found is not None:
            found.used_s = time.monotonic()
            found.sessions |= self._holder(order)

    async def _prepare_more(self, order: PrepareOrder, needs: list[str]) -> Prepared | None:
        """Prepare ``needs``, and what was learned of the user; without needs only that, and nobody waits for it."""
        async with self._one_at_a_time:  # who asks for the same finds it there
            base = await self._base()
            wanted = self._wanted(order.names, order.user, base)
            if not wanted:
                return None
            found = self._find(needs or wanted)
            if found is None:
                found = await self._make(base, dict.fromkeys(wanted))
            if found is not None:
                found.sessions |= self._holder(order)
            return found

    def _holder(self, order: PrepareOrder) -> set[str]:
        """The session for which it was prepared, unless that has ended meanwhile."""
        return {order.session}.difference(self._ended, {""})

    def _wanted(self, needs: Iterable[str], user: str, base: ForkServer) -> list[str]:
        asked = dict.fromkeys([*needs, *self._learned.get(user, ())])
        return [name for name in asked if self._is_worth_it(name, base)]

    def _is_worth_it(self, name: str, base: ForkServer) -> bool:
        """Tell if it is a module of an installed distribution that can be imported ahead, and is not there yet."""
        why_not = self._unfit.get(name)
        is_fit = why_not is None or (why_not == THREADS and not self._as_owners)
        return is_fit and name not in base.modules and "__main__" not in name and is_installed(name)

    async def _make(self, base: ForkServer, needs: dict[str, None]) -> Prepared | None:
        while needs:
            before = self._to_fork_from(needs)
            parent, had = (base, frozenset[str]()) if before is None else (before.server, before.server.modules)
            names = [name for name in needs if name not in self._unfit and name not in had]
            server = await self._fork(parent, names)
            if server is None:
                return None
            try:
                await server.ready()
                server.at_rest = [name for name in needs if name in self._unfit]
                await server.stand_by(_FORK_S)
            except (ClusterError, asyncio.CancelledError) as error:  # nobody else knows of it yet
                server.kill()
                server.remove_files()
                if not isinstance(error, ClusterError):
                    raise
                if not parent.alive:
                    return None
                self._learn_unfit(server, names, error)
                needs = {name: None for name in needs if self._is_worth_it(name, base)}
                continue
            if base.is_retired:  # packages have changed meanwhile: it has the old ones
                server.kill()
                server.remove_files()
                return None
            made = Prepared(server, frozenset(needs), server.status.bytes)
            if before is not None:
                made.bytes, made.depth = made.bytes + before.bytes, before.depth + 1
            log.info("prepared: %s (%d MiB)", ", ".join(made.info.libraries), made.bytes >> 20)
            self._replace(made)
            return made
        return None

    def _to_fork_from(self, needs: Iterable[str]) -> Prepared | None:
        """One that has a part of this already, and nothing else; it is replaced by what is made of it."""
        fit = [each for each in self._alive() if each.depth < _MOST_DEPTH and each.names.issubset(needs)]
        return max(fit, key=lambda each: len(each.names), default=None)

    async def _fork(self, base: ForkServer, names: list[str]) -> ForkServer | None:
        path, listener = self._bind()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        forked = ForkServer(path, None, ours)
        try:
            with listener, theirs:
                base.order_prepared(names, listener, theirs)
            async with asyncio.timeout(_FORK_S):
                if not await forked.hear():
                    raise ConnectionResetError
            forked.process = ForeignProcess(forked.status.pid)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            forked.remove_files()
            if isinstance(error, asyncio.CancelledError):
                raise
            return None  # the fork server has ended, or is about to
        return forked

    def _learn_unfit(self, server: ForkServer, names: list[str], error: ClusterError) -> None:
        unfit = server.status.unfit
        if not unfit:  # of one that hangs or ended there is nothing more to hear
            log.warning("%s", error.message)
            unfit = dict.fromkeys([server.importing] if server.importing else names, "the process ended as it did")
        self._unfit |= unfit

    def _replace(self, made: Prepared) -> None:
        """It has what others had: they go, and beyond the limit those that were used least of late."""
        for each in [each for each in self._all if made.has(each.names)]:
            made.sessions |= each.sessions
            self._drop(each)
        self._all.append(made)
        for each in sorted(self._all, key=lambda each: each.used_s)[: -self._most]:
            self._drop(each)
        made.server.prefork(STANDBY)

    # ---------------------------------------------------------------------------------------------- use
    def find_server(self, needs: Iterable[str], user: str, base: ForkServer, *, is_gang: bool) -> ForkServer | None:
        """The one that a cell of ``user`` which needs these modules is forked from; None: the usual one.

        Ranks of a gang are told their places later than this: no library may have asked for them.
        """
        if not self._all:
            return None
        wanted = self._wanted(needs, user, base)
        fit = [each for each in self._alive() if not (is_gang and each.server.status.ask_for_rank)]
        best = max(fit, key=lambda each: (sum(each.has([name]) for name in wanted), each.used_s), default=None)
        if best is None or not any(best.has([name]) for name in wanted):
            return None
        best.used_s = time.monotonic()
        return best.server

    def _find(self, needs: Iterable[str]) -> Prepared | None:
        return next((each for each in reversed(self._alive()) if each.has(needs)), None)

    def _alive(self) -> list[Prepared]:
        for each in [each for each in self._all if not each.server.alive]:
            self._drop(each)
        for server in [server for server in self._leaving if not server.alive]:
            self._leaving.remove(server)
            server.remove_files()
        return self._all

    def learn(self, user: str, session: str, imported: Iterable[ImportedModule]) -> list[str]:
        """A cell had to import these itself: the user's next one finds them imported. Returns notes for its receipt."""
        found = [each for each in imported if is_installed(each.name)]
        if not found:
            return []
        known = self._learned.setdefault(user, {})
        known |= dict.fromkeys(each.name for each in found)  # in the order of their first imports: see ImportLog
        for name in list(known)[:-_MOST_LEARNED]:
            del known[name]
        if self._most and sum(each.seconds for each in found) >= _WORTH_S:
            self._later.spawn(self._prepare_later(PrepareOrder([], user, session)))
        return self._say(found)

    async def _prepare_later(self, order: PrepareOrder) -> None:
        with contextlib.suppress(ClusterError, OSError):  # said where it is asked for
            await self._prepare(order)

    def _say(self, imported: list[ImportedModule]) -> list[str]:
        notes = []
        by_reason: dict[str, list[ImportedModule]] = {}
        for each in imported:
            by_reason.setdefault(self._unfit.get(each.name, ""), []).append(each)
        for reason, group in by_reason.items():
            seconds = sum(each.seconds for each in group)
            if seconds < _SAID_S:
                continue
            tops = list(dict.fromkeys(each.name.partition(".")[0] for each in group if each.seconds))
            named = ", ".join(tops[:_MOST_NAMED]) + (" …" if len(tops) > _MOST_NAMED else "")
            why = reason or ("the next cell finds it imported" if self._most else "nothing is imported ahead here")
            notes.append(f"{seconds:.1f} s of the time held went into importing {named}: {why}")
        return notes

    # ---------------------------------------------------------------------------------------------- end
    def end_session(self, session: str) -> None:
        """A kernel has ended: what was prepared for nobody else goes."""
        self._ended[session] = None
        for early in list(self._ended)[:-_MOST_ENDED]:
            del self._ended[early]
        for each in [each for each in self._all if session in each.sessions]:
            each.sessions.discard(session)
            if not each.sessions:
                self._drop(each)

    def end_all(self) -> None:
        """Packages have changed, or the fork server is another one."""
        self._unfit.clear()
        for each in list(self._all):
            self._drop(each)

    def kill_all(self) -> None:
        """End them now, with their ranks."""
        for task in self._later.tasks:
            task.cancel()
        for server in [*self._leaving, *(each.server for each in self._all)]:
            server.kill()
            server.remove_files()
        self._all.clear()
        self._leaving.clear()

    async def watch_forever(self) -> None:
        """Let go of what nobody uses, and of more where memory is short."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now = time.monotonic()
            for each in list(self._alive()):
                if now - each.used_s > (_HELD_S if each.sessions else _UNUSED_S):
                    self._drop(each)
            memory = psutil.virtual_memory()
            if self._all and memory.available < _FREE_SHARE * memory.total:
                each = min(self._all, key=lambda each: each.used_s)
                log.info("memory is short: what was prepared goes (%s)", ", ".join(each.info.libraries))
                self._drop(each)

    def _drop(self, each: Prepared) -> None:
        """It ends when its last rank has."""
        self.gone += 1
        self._all.remove(each)
        each.server.retire()
        self._leaving.append(each.server)


def is_installed(name: str) -> bool:
    """Tell if a module belongs to an installed distribution: what is edited beside the notebook would grow old."""
    top = name.partition(".")[0]
    return bool(top) and PathFinder.find_spec(top, package_folders()) is not None
