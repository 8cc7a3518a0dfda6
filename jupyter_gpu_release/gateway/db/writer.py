"""The one thread that writes the ledger: what waits is committed together, the event loop is never blocked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from ...errors import ClusterError
from . import database

log = logging.getLogger(__name__)
Write = Callable[[Connection], None]
#: SQLAlchemy's messages repeat the values that were to be written
_LONGEST_REASON = 300
_MOST_IN_ONE_COMMIT = 200
#: between two tries of what the disk refuses
_AGAIN_S = 1.0
#: how long a write that may wait does wait, for a later one to replace it or an urgent one to take it along
_LATER_S = 0.1


@dataclass(frozen=True)
class _Entry:
    """A write, who waits for it, and what is tried again and again should the disk refuse it."""

    write: Write
    done: asyncio.Future[None]
    again: Write | None = None


class LedgerError(ClusterError):
    """A write could not be committed, or there is nobody any more to commit it; the reason is its cause."""

    def __init__(self, message: str) -> None:
        hint = "is the gateway's disk full? see log/gateway.log"
        super().__init__(f"the ledger cannot record this: {message}", hint=hint)


class LedgerWriter:
    """Takes writes in order and answers with a future that is done once they are committed.

    A write that fails, in whatever way, fails for its caller alone. Should the thread end nevertheless, nothing more
    can be taken in: ``on_death`` is called on the event loop, and everything that waits fails. ``trouble`` says what is
    wrong with the disk, while something is.
    """

    def __init__(self, engine: Engine, on_death: Callable[[], None] = lambda: None) -> None:
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._link = _WriterConnection(engine)
        self._waiting: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        #: what the thread is about to commit
        self._batch: list[_Entry] = []
        self._later: dict[str, Write] = {}
        self._flushing: asyncio.TimerHandle | None = None
        self.is_alive = True
        self.trouble = ""
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    def write(self, write: Write, *, replaces: str = "", again: Write | None = None) -> asyncio.Future[None]:
        """Queue ``write``. The future carries the error when it could not be committed; nobody need await it.

        ``replaces``: the key of a :meth:`write_later` write that this one replaces. ``again``: what is tried instead
        when the disk refuses ``write`` (it is full), until it is committed; the future waits for that.
        """
        self._later.pop(replaces, None)
        done: asyncio.Future[None] = self._loop.create_future()
        done.add_done_callback(_note_failure)
        if self.is_alive:
            self._waiting.put(_Entry(write, done, again))
        else:
            done.set_exception(LedgerError("its thread has ended"))
        return done

    def write_later(self, key: str, write: Write) -> None:
        """Commit ``write`` soon, unless another one with the same key comes first. For what can be found out again."""
        self._later[key] = write
        if self._flushing is None:
            self._flushing = self._loop.call_later(_LATER_S, self.flush)

    async def drain(self) -> None:
        """Return once each :meth:`write` until now is committed, or has failed for its caller."""
        with contextlib.suppress(LedgerError):
            await self.write(lambda link: None)

    def close(self) -> None:
        """Commit what waits and end the thread."""
        self.flush()
        self._waiting.put(None)
        self._thread.join(5.0)

    def flush(self) -> None:
        """Queue now what may wait."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        writes, self._later = self._later, {}
        for write in writes.values():
            self.write(write)

    def _work(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            try:
                while (batch := self._next_batch()) is not None:
                    self._batch = batch
                    results = self._link.commit([entry.write for entry in batch])
                    self._loop.call_soon_threadsafe(self._answer, list(zip(batch, results, strict=True)))
            except BaseException:
                log.critical("the ledger's thread ends", exc_info=True)
                self._loop.call_soon_threadsafe(self._die)
            finally:
                self._link.close()

    def _die(self) -> None:
        self.is_alive = False
        lost = list(self._batch)
        while not self._waiting.empty():
            if (entry := self._waiting.get()) is not None:
                lost.append(entry)
        for entry in lost:
            if not entry.done.done():
                entry.done.set_exception(LedgerError("its thread has ended"))
        self._on_death()

    def probe_disk(self) -> None:
        """Find out whether the disk's trouble is over (called every few seconds)."""
        if self.trouble and self.is_alive:
            probe = partial(database.write_meta, key="looked at", value=str(time.time()))
            self._waiting.put(_Entry(probe, self._loop.create_future(), probe))

    def _answer(self, answers: list[tuple[_Entry, Exception | None]]) -> None:
        for entry, error in answers:
            if isinstance(error, OperationalError):
                self._note_trouble(error)
                if entry.again is not None:
                    self._loop.call_later(_AGAIN_S, self._try_again, entry)
                    continue
            elif entry.write is entry.again:
                self.trouble = ""
            _settle(entry.done, error)

    def _note_trouble(self, error: OperationalError) -> None:
        if not self.trouble:
            log.error("the ledger cannot be written: %s", error)
        self.trouble = str(error.orig)[:_LONGEST_REASON]

    def _try_again(self, entry: _Entry) -> None:
        if entry.again is None or not self.is_alive:
            _settle(entry.done, LedgerError("its thread has ended"))
        else:
            self._waiting.put(_Entry(entry.again, entry.done, entry.again))

    def _next_batch(self) -> list[_Entry] | None:
        first = self._waiting.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < _MOST_IN_ONE_COMMIT and not self._waiting.empty():
            more = self._waiting.get()
            if more is None:
                self._waiting.put(None)
                break
            batch.append(more)
        return batch


class _WriterConnection:
    """The thread's connection; one that has failed is replaced, for its transaction may be in any state."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def commit(self, writes: list[Write]) -> list[Exception | None]:
        """Commit all in one transaction; when that fails, one by one, so that only the faulty one is lost."""
        error = self._attempt(writes)
        if error is None or len(writes) == 1:
            return [error] * len(writes)
        return [self._attempt([write]) for write in writes]

    def _attempt(self, writes: list[Write]) -> Exception | None:
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            with self._connection.begin():
                for write in writes:
                    write(self._connection)
        except Exception as error:  # noqa: BLE001 - whatever one caller's write does, the others' go on
            self.close()
            return error
        return None

    def close(self) -> None:
        """Let go of the connection; the next commit makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.invalidate()
                connection.close()


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        refusal = LedgerError(f"{type(error).__name__}: {str(error)[:_LONGEST_REASON]}")
        refusal.__cause__ = error
        done.set_exception(refusal)


def _note_failure(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("a write to the ledger failed: %s", error)
