"""The operator's named environments as the gateway offers them: the file is read again whenever somebody asks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from ...environments.named import Offers, read_environments
from ...errors import ForbiddenError, OptionError, StoreSilentError
from ...host.background import LastLook
from ...protocol.environments import NamedEnvironment
from ...store.threads import StoreThreads

log = logging.getLogger(__name__)
#: for which a status says the same names again
_SEEN_S = 30.0


class NamedEnvironments:
    """``path``: the file; empty: there are none. Of a file that is malformed the last good version goes on to hold."""

    def __init__(self, path: str, threads: StoreThreads) -> None:
        self._path = Path(path) if path else None
        self._threads = threads
        self._offered = Offers()
        self._seen = LastLook(self._read, _SEEN_S, self._offered)

    @property
    def pythons(self) -> list[str]:
        """Other Pythons for all, as the file said when it was read last."""
        return self._offered.pythons

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
        if self._path is not None:
            try:
                self._offered = await self._threads.run(read_environments, self._path)
            except (OptionError, StoreSilentError) as error:
                log.warning("%s; named environments stay as they were", error.message)
        return self._offered

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
