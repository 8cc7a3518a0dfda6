"""Runs as their folders on the store tell of them: all that is left when their cluster is gone."""

from __future__ import annotations

import time
from pathlib import Path

from ...client.home import HomePaths
from ...errors import ForbiddenError, NoSuchRunError, StoreError
from ...presentation.run_row import own_row
from ...protocol.rest import RunRow
from ...protocol.states import is_run_id
from ...store.layout import RunPaths
from ...store.stored_run import StoredRun, newest_names
from ..gateway import GatewayConnection
from .files import open_record


def paths_of(line: GatewayConnection, run: str) -> RunPaths:
    """The run's folder as this server sees it. Raises :class:`StoreError` for what is no run id."""
    return RunPaths.of(_store_of(line), run)


def _store_of(line: GatewayConnection) -> Path:
    return Path(line.store) if line.store else HomePaths.from_environment().store


def find_stored(line: GatewayConnection, run: str, *, is_gone: bool = True) -> StoredRun:
    """A run whose cluster is gone (or only silent), for who may see it.

    Where each user has a token of her own, she sees her own runs: nobody else is there to decide it.

    Raises
    ------
    NoSuchRunError, ForbiddenError, StoreError
        Nothing is known of it here, it may be another user's, or its record cannot be read.
    """
    try:
        stored = StoredRun.read(paths_of(line, run), opener=open_record)
    except StoreError as error:
        if is_run_id(run) and not isinstance(error.__cause__, FileNotFoundError):
            raise  # a record is there
        raise NoSuchRunError(f"run {run} is not known here", hint="it belongs to another cluster") from error
    found = stored.without_cluster() if is_gone else stored.while_silent()
    if line.is_of_one_user and not is_own(line, found.view.user):
        raise ForbiddenError(f"run {run} may be another user's", hint="once its cluster is back, that decides")
    return found


def is_own(line: GatewayConnection, user: str) -> bool:
    """Tell if the gateway last knew who asks as ``user``."""
    return bool(user) and line.user == user


def newest_stored(line: GatewayConnection, count: int, *, is_gone: bool = True) -> list[RunRow]:
    """The newest runs on the store, newest first, for a server whose cluster is gone or silent; no damaged ones."""
    now_s, rows = time.time(), []
    for name in newest_names(_store_of(line), count):
        try:
            rows.append(own_row(find_stored(line, name, is_gone=is_gone).view, now_s))
        except (NoSuchRunError, ForbiddenError, StoreError):
            continue
    return rows
