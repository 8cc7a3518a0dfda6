"""The one thread that writes the ledger: what waits is committed together, the event loop is never blocked."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

log = logging.getLogger(__name__)
Write = Callable[[Connection], None]
_MOST_IN_ONE_COMMIT = 200
#: how long a write that may wait does wait, for a later one to replace it or an urgent one to take it along
_LATER_S = 0.1


class Journal:
    """Takes writes in order and answers with a future that is done once they are committed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[Write, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._later: dict[str, Write] = {}
        self._flushing: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    def put(self, write: Write, *, replaces: str = "") -> asyncio.Future[None]:
        """Queue ``write``. The future carries the error when it could not be committed; nobody need await it.

        ``replaces``: the key of a :meth:`later` write that this one makes superfluous.
        """
        self._later.pop(replaces, None)
        done: asyncio.Future[None] = self._loop.create_future()
        done.add_done_callback(_note_failure)
        self._waiting.put((write, done))
        return done

    def later(self, key: str, write: Write) -> None:
        """Commit ``write`` soon, unless another one with the same key comes first. For what can be found out again."""
        self._later[key] = write
        if self._flushing is None:
            self._flushing = self._loop.call_later(_LATER_S, self._flush)

    def close(self) -> None:
        """Commit what waits and end the thread."""
        self._flush()
        self._waiting.put(None)
        self._thread.join(5.0)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        writes, self._later = self._later, {}
        for write in writes.values():
            self.put(write)

    def _work(self) -> None:
        with self._engine.connect() as connection:
            while (batch := self._next_batch()) is not None:
                results = _commit(connection, [write for write, _ in batch])
                answers = [(done, error) for (_, done), error in zip(batch, results, strict=True)]
                try:
                    self._loop.call_soon_threadsafe(_answer, answers)
                except RuntimeError:  # the loop is closed: nobody waits any more
                    return

    def _next_batch(self) -> list[tuple[Write, asyncio.Future[None]]] | None:
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


def _commit(connection: Connection, writes: list[Write]) -> list[BaseException | None]:
    """Commit all in one transaction; when that fails, one by one, so that only the faulty one is lost."""
    error = _attempt(connection, writes)
    if error is None or len(writes) == 1:
        return [error] * len(writes)
    return [_attempt(connection, [write]) for write in writes]


def _attempt(connection: Connection, writes: list[Write]) -> BaseException | None:
    try:
        with connection.begin():
            for write in writes:
                write(connection)
    except (SQLAlchemyError, ValueError, TypeError) as error:
        return error
    return None


def _answer(answers: list[tuple[asyncio.Future[None], BaseException | None]]) -> None:
    for done, error in answers:
        if done.cancelled():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


def _note_failure(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("the ledger refused a write: %s", error)
