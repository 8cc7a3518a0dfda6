"""The queues file as the gateway follows it: read at the start, and again whenever it has changed."""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sqlalchemy.engine import Engine

from ..errors import OptionError, StoreSilentError
from ..host.threads import StoreThreads
from ..scheduling.queues.queues_file import QueuesFile, parse_queues
from .db import database
from .db.writer import LedgerWriter

log = logging.getLogger(__name__)
#: changed when the file is another: time of its last change, bytes, inode
_Stamp = tuple[int, int, int]
_KEY = "queues"


class QueueRules:
    """Queues, and who may use them. Of a file that is malformed the last good version goes on to hold, and is
    remembered in the ledger: a gateway that restarts has it, too.

    Its methods are called on the gateway's loop. ``on_change`` is called there when the queues are others.
    """

    def __init__(
        self,
        path: str,
        cluster: str,
        engine: Engine,
        ledger: LedgerWriter,
        threads: StoreThreads,
        on_change: Callable[[], None],
    ) -> None:
        #: what holds now
        self.file = QueuesFile()
        #: why the file as it is now does not hold; None: it does
        self.trouble: OptionError | StoreSilentError | None = None
        self._path = Path(path) if path else None
        self._cluster = cluster
        self._engine = engine
        self._ledger = ledger
        self._threads = threads
        self._on_change = on_change
        self._stamp: _Stamp | None = None
        self._text = ""
        self._reading: Future[tuple[_Stamp, str] | None] | None = None

    @property
    def path(self) -> str:
        """The file; empty without one."""
        return "" if self._path is None else str(self._path)

    async def load(self) -> None:
        """Read the file for the first time.

        Raises :class:`OptionError` when it is malformed, unless this cluster had a good version of it before.
        """
        if self._path is None:
            return
        try:
            await self._read()
        except (OptionError, StoreSilentError) as error:
            before = self._remembered()
            if before is None:
                raise
            self._text, self.file = before, parse_queues(before, self.path)
            self._note_trouble(error)

    async def look(self) -> None:
        """Read the file again if it has changed. Of one that cannot be read, or is malformed, nothing holds."""
        if self._path is None or (self._reading is not None and not self._reading.done()):
            return
        try:
            changed = await self._read()
        except (OptionError, StoreSilentError) as error:
            self._note_trouble(error)
            return
        if changed:
            log.info("queues file %s: the new version holds", self._path)
            self._on_change()

    async def _read(self) -> bool:
        """Take the file over as it is now, and tell if the queues are others."""
        self._reading = self._threads.begin(self._read_if_changed, self._stamp)
        stamp, self._stamp = self._stamp, None  # of a file that cannot be read now nothing is known
        found = await self._threads.wait_for_answer(self._reading)
        if found is None:
            self._stamp = stamp
            return False
        self._stamp, text = found
        file = parse_queues(text, self.path)
        changed = text != self._text
        if self.trouble:
            self._note_trouble(None)
        if changed:
            self.file, self._text = file, text
            self._remember(text)
        return changed

    def _read_if_changed(self, stamp: _Stamp | None) -> tuple[_Stamp, str] | None:
        """In a thread: the file may lie on a filesystem that hangs."""
        assert self._path is not None
        try:
            facts = self._path.stat()
            now = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            return None if now == stamp else (now, self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
            raise OptionError(
                f"queues file {self._path}: {reason}", hint="put it back, or restart without it"
            ) from error

    def _note_trouble(self, trouble: OptionError | StoreSilentError | None) -> None:
        said = trouble.message if trouble is not None else ""
        changed = said != (self.trouble.message if self.trouble is not None else "")
        self.trouble = trouble
        if trouble is not None and changed:
            log.warning("%s; the queues stay as they were", said)
        if changed:
            self._on_change()

    def _remember(self, text: str) -> None:
        self._ledger.write(partial(database.write_meta, key=_KEY, value=f"{self._cluster}\n{text}"))

    def _remembered(self) -> str | None:
        with self._engine.connect() as connection:
            cluster, _, text = (database.read_meta(connection, _KEY) or "").partition("\n")
        return text if cluster == self._cluster and text else None
