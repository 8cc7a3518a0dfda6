"""The operator's named environments as the gateway offers them: the file is read again whenever somebody asks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import msgspec
from sqlalchemy.engine import Engine

from ...environments.named import Offers, read_environments
from ...errors import ForbiddenError, OptionError, StoreSilentError
from ...host.background import LastLook
from ...host.threads import StoreThreads
from ...protocol.environments import NamedEnvironment
from ..db import database
from ..db.writer import LedgerWriter

log = logging.getLogger(__name__)
#: for which a status says the same names again
_SEEN_S = 30.0
_KEY = "named_environments"


class NamedEnvironments:
    """``path``: the file; empty: there are none. Of a file that is malformed the last good version goes on to hold, and
    is remembered in the ledger: a gateway that restarts has it, too.
    """

    def __init__(self, path: str, cluster: str, engine: Engine, ledger: LedgerWriter, threads: StoreThreads) -> None:
        self._path = Path(path) if path else None
        self._owner = f"{cluster}\n{path}\n"
        self._engine = engine
        self._ledger = ledger
        self._threads = threads
        self._offered: Offers | None = None
        #: why the file as it was read last does not hold; None: it does
        self.trouble: OptionError | StoreSilentError | None = None
        self._seen = LastLook(self._read, _SEEN_S, Offers())

    @property
    def pythons(self) -> list[str]:
        """Other Pythons for all, as the file said when it was read last."""
        return self._offered.pythons if self._offered is not None else []

    async def of_user(self, user: str, groups: Mapping[str, Collection[str]]) -> list[NamedEnvironment]:
        """Return those that a user is offered. ``groups``: of the queues file."""
        offered = await self._read()
        return [each.environment for each in offered.environments if each.is_for(user, groups)]

    async def names_for(self, user: str, groups: Mapping[str, Collection[str]]) -> list[str]:
        """Names of those, as of a moment ago: for who asks again and again."""
        offered = await self._seen.newest()
        return [each.environment.name for each in offered.environments if each.is_for(user, groups)]

    async def interpreters(self) -> list[str]:
        """Return other Pythons that everybody is offered: those of kernels, and of named environments for all."""
        offered = await self._read()
        named = (each.environment.interpreter for each in offered.environments if each.users is None)
        return list(dict.fromkeys([*offered.pythons, *(each for each in named if each)]))

    async def _read(self) -> Offers:
        if self._path is None:
            return Offers()
        if self._offered is None:
            self._offered = self._remembered()
        try:
            found = await self._threads.run(read_environments, self._path)
        except (OptionError, StoreSilentError) as error:
            if self.trouble is None or self.trouble.message != error.message:
                log.warning("%s; named environments stay as they were", error.message)
            self.trouble = error
            return self._offered
        self.trouble = None
        if found != self._offered:
            self._offered = found
            text = self._owner + msgspec.json.encode(found).decode()
            self._ledger.write(partial(database.write_meta, key=_KEY, value=text))
        return found

    def _remembered(self) -> Offers:
        with self._engine.connect() as connection:
            text = database.read_meta(connection, _KEY) or ""
        try:
            return msgspec.json.decode(text.removeprefix(self._owner), type=Offers)
        except msgspec.MsgspecError:  # of another cluster or file, or of another version
            return Offers()

    async def check(self, interpreter: str, user: str, groups: Mapping[str, Collection[str]]) -> None:
        """Raise :class:`ForbiddenError` for another Python than those that the user is offered."""
        if not interpreter:
            return
        named = await self.of_user(user, groups)
        if interpreter not in [*self.pythons, *(each.interpreter for each in named)]:
            raise ForbiddenError(
                f"Python {interpreter} is none that you are offered",
                hint="the operator names it in the file of named environments (`pythons:`, `python:`, `path:`)",
            )
