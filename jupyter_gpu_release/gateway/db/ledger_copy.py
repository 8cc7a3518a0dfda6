"""The ledger's copy on the store: made anew while the ledger changes, and taken where the head's disk is lost.

A cluster of one machine has none: its store is as a rule on the disk of the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

from ...errors import StoreError
from ...host.threads import StoreThreads
from ...protocol.config import GatewayConfig, StoreMode
from ...store.digests import digest_of
from ...store.files import make_private_folder, write_atomic
from ...store.private_stores import acting_for, separate_users
from .schema import SCHEMA_VERSION

log = logging.getLogger(__name__)
#: between two copies at least, and in times of what the last one took
_APART_S, _APART_TIMES = 5.0, 50.0
_CHUNK_BYTES = 1 << 20
#: for copies of this home that nobody writes any more: the head had another address
_KEPT_S = 30 * 86400.0


def ledger_path(config: GatewayConfig) -> Path:
    """The ledger, on a disk of the head."""
    return Path(config.ledger or Path(config.home) / "ledger.sqlite")


def copy_path(config: GatewayConfig) -> Path:
    """Where the copy is: named by what a head in its place has, too, and by who can read it.

    Several clusters may share a store.
    """
    home, address = (digest_of(word.encode())[:12] for word in (config.home, config.ray_address))
    return Path(config.store) / "ledgers" / f"{home}-{address}-{SCHEMA_VERSION}.sqlite"


def restore_ledger(config: GatewayConfig) -> None:
    """Take the copy where there is no ledger; raises :class:`StoreError` when it cannot be read."""
    path, copy = ledger_path(config), copy_path(config)
    if config.embedded or path.exists():
        return
    make_private_folder(path.parent)
    if config.store_mode == StoreMode.OWNER:
        separate_users(Path(config.store))
    try:
        with acting_for(copy.parent.parent):
            _expect_own(copy.parent)
            source = copy.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(
            f"the ledger's copy {copy} cannot be read: {error.strerror}", hint="move it away to start a new ledger"
        ) from error
    with source:
        write_atomic(path, _chunks(source))
    log.warning("there was no ledger: it is the copy %s, as it was %.0f s ago", copy, time.time() - _written_s(copy))


def _expect_own(folder: Path) -> None:
    """Raise :class:`StoreError` where others could have put a ledger: it says who is an admin."""
    facts, owners = folder.lstat(), (os.geteuid(), folder.parent.stat().st_uid)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in owners or facts.st_mode & 0o077:
        raise StoreError(f"{folder} is not this service's alone: no ledger is read there", hint="move it away")


def _written_s(copy: Path) -> float:
    with acting_for(copy.parent.parent):
        return copy.stat().st_mtime


class LedgerCopy:
    """Copies the ledger to the store, in threads; the event loop never waits. A store that refuses is tried again."""

    def __init__(self, config: GatewayConfig, threads: StoreThreads) -> None:
        self._config = config
        self._threads = threads
        self._due_s = 0.0
        self._copied = (0, 0)
        self._copying: asyncio.Future[None] | None = None

    def look(self) -> None:
        """Begin a copy if one is due and the ledger has changed; called every few seconds."""
        is_busy = self._copying is not None and not self._copying.done()
        if self._config.embedded or is_busy or time.monotonic() < self._due_s:
            return
        if (state := self._state()) != self._copied:
            self._copying = self._threads.begin(self._copy, state)

    def _state(self) -> tuple[int, int]:
        """A state that no commit leaves as it is: the side file grows, or begins anew."""
        path = ledger_path(self._config)
        with suppress(OSError):
            facts = os.stat(f"{path}-wal")
            return facts.st_mtime_ns, facts.st_size
        return 0, 1

    def _copy(self, state: tuple[int, int]) -> None:
        began_s = time.monotonic()
        try:
            copy_ledger(ledger_path(self._config), copy_path(self._config))
            self._copied = state
        except (OSError, StoreError, sqlite3.Error) as error:
            log.warning("the ledger is not copied to the store: %s", error)
        took_s = time.monotonic() - began_s
        self._due_s = began_s + took_s + max(_APART_S, took_s * _APART_TIMES)


def copy_ledger(path: Path, copy: Path) -> None:
    """Write a copy of a ledger in use, as it is at one moment; raises OSError, StoreError and ``sqlite3.Error``."""
    part = path.with_name(f"{path.name}.copy")
    try:
        _back_up(path, part)
        with part.open("rb") as source, acting_for(copy.parent.parent):
            make_private_folder(copy.parent)
            _expect_own(copy.parent)
            write_atomic(copy, _chunks(source))
            _remove_old(copy)
    finally:
        part.unlink(missing_ok=True)


def _remove_old(copy: Path) -> None:
    home = copy.name.partition("-")[0]
    for other in copy.parent.glob(f"{home}-*.sqlite"):
        if other.stat().st_mtime < time.time() - _KEPT_S:
            other.unlink()


def _back_up(path: Path, part: Path) -> None:
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(part)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")  # else a reader would look for the side files


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk
