"""Watches if this node sees the store: without it no run could end well here, so it takes none."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from ...errors import StoreError
from ...host.threads import Acting, DaemonThreads
from ...store.run_folders import require_store

_EVERY_S = 3.0
#: a filesystem that has not answered after this hangs
_LIMIT_S = 5.0


class StoreWatch:
    """Asks in a thread of its own, one at a time: a store that hangs is never waited for."""

    def __init__(self, store: str, acting: Acting | None = None) -> None:
        """``acting``: as for :class:`.StoreThreads`."""
        self._store = Path(store)
        look = partial(_trouble, self._store)
        self._look = acting(self._store, look) if acting is not None else look
        self._threads = DaemonThreads(1, "jgr-store-watch")
        self._asked: asyncio.Future[str] | None = None
        #: why no run can be carried out here, in words; empty when the store is there
        self.trouble = ""

    async def watch_forever(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.ask_store()

    async def ask_store(self) -> None:
        """Ask once, unless an earlier question is not answered yet."""
        if self._asked is None:
            self._asked = self._threads.begin(self._look)
        if not (await asyncio.wait({self._asked}, timeout=_LIMIT_S))[0]:
            self.trouble = f"the store {self._store} does not answer: is its filesystem's server up?"
            return
        self.trouble, self._asked = self._asked.result(), None


def _trouble(store: Path) -> str:
    try:
        require_store(store)
    except StoreError as error:
        return f"{error.message}: {error.hint}" if error.hint else error.message
    except OSError as error:
        return f"the store {store} cannot be read: {error.strerror}"
    return ""
