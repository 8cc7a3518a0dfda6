"""The operator's named environments as the gateway offers them: the file is read again whenever somebody asks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from ...environments.named import OfferedEnvironment, read_environments
from ...errors import OptionError, StoreSilentError
from ...protocol.environments import NamedEnvironment
from ...store.threads import StoreThreads

log = logging.getLogger(__name__)


class NamedEnvironments:
    """``path``: the file; empty: there are none. Of a file that is malformed the last good version goes on to hold."""

    def __init__(self, path: str, threads: StoreThreads) -> None:
        self._path = Path(path) if path else None
        self._threads = threads
        self._offered: list[OfferedEnvironment] = []

    async def of_user(self, user: str, groups: Mapping[str, Collection[str]]) -> list[NamedEnvironment]:
        """Return those that a user is offered. ``groups``: of the queues file."""
        if self._path is not None:
            try:
                self._offered = await self._threads.run(read_environments, self._path)
            except (OptionError, StoreSilentError) as error:
                log.warning("%s; named environments stay as they were", error.message)
        return [each.environment for each in self._offered if each.is_for(user, groups)]
