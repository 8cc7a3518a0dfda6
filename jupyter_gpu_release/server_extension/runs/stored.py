"""Runs as their folders on the store tell of them: all that is left when their cluster is gone."""

from __future__ import annotations

import heapq
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...client.home import HomePaths
from ...errors import ForbiddenError, NoSuchRunError, StoreError
from ...protocol.lineage import RunFacts, UsedInput
from ...protocol.rest import RunError, RunRow, run_row
from ...protocol.runs import Outcome, RunView
from ...protocol.states import RunState, is_run_id
from ...store.layout import RunPaths
from ...store.run_folders import read_manifest
from ..gateway import GatewayConnection
from .files import open_record


def paths_of(line: GatewayConnection, run: str) -> RunPaths:
    """The run's folder as this server sees it. Raises :class:`StoreError` for what is no run id."""
    return RunPaths.of(_store_of(line), run)


def _store_of(line: GatewayConnection) -> Path:
    return Path(line.store) if line.store else HomePaths.from_environment().store


@dataclass(frozen=True)
class StoredRun:
    """A run as its manifest describes it. ``view``: what had not ended is as it was then."""

    view: RunView
    facts: RunFacts

    @classmethod
    def read(cls, paths: RunPaths) -> StoredRun:
        """Read its manifest; raises :class:`StoreError` where there is none, or a damaged one."""
        manifest = read_manifest(paths, opener=open_record)
        (manifest.get("outcome") or {}).pop("values", None)  # a file, told in other words than in a message
        try:
            return cls(msgspec.convert(manifest, RunView, strict=False), _facts_in(manifest))
        except msgspec.ValidationError as error:
            raise StoreError(f"{paths.manifest} is not what it should be: {error}") from error

    def without_cluster(self) -> StoredRun:
        """The same once its cluster is gone: what had not ended, ended with it."""
        view = self.view
        if RunState.of(view.state).is_terminal:
            return self
        has_ended = view.outcome is not None
        reason = "its cluster ended before its results were written" if has_ended else "its cluster ended before it"
        ended = msgspec.structs.replace(view, state=RunState.LOST.word, reason=reason, outcome=None)
        return StoredRun(ended, self.facts)

    def row(self, now_s: float) -> RunRow:
        """Its row of ``runs``."""
        outcome = self.view.outcome or Outcome("")
        error = outcome.error
        shown = None if error is None else RunError(error.ename, error.evalue, error.code, error.hint)
        return run_row(self.view, now_s, results=outcome.results, files=outcome.files, notes=outcome.notes, error=shown)


def _facts_in(manifest: dict[str, Any]) -> RunFacts:
    known = {name: manifest.get(name) for name in ("code", "versions", "environment", "options")}
    facts = msgspec.convert({name: value for name, value in known.items() if value}, RunFacts, strict=False)
    used = msgspec.convert(manifest.get("inputs") or [], list[UsedInput], strict=False)
    return msgspec.structs.replace(facts, used=used)


def find_stored(line: GatewayConnection, run: str) -> StoredRun:
    """A run whose cluster is gone, for who may see it.

    Where each user has a token of her own, she sees her own runs: nobody else is there to decide it.

    Raises
    ------
    NoSuchRunError, ForbiddenError, StoreError
        Nothing is known of it here, it may be another user's, or its record cannot be read.
    """
    try:
        found = StoredRun.read(paths_of(line, run)).without_cluster()
    except StoreError as error:
        if is_run_id(run) and not isinstance(error.__cause__, FileNotFoundError):
            raise  # a record is there
        raise NoSuchRunError(f"run {run} is not known here", hint="it belongs to another cluster") from error
    if line.is_of_one_user and not is_own(line, found.view.user):
        raise ForbiddenError(f"run {run} may be another user's", hint="once its cluster is back, that decides")
    return found


def is_own(line: GatewayConnection, user: str) -> bool:
    """Tell if the gateway last knew who asks as ``user``."""
    return bool(user) and line.user == user


def newest_stored(line: GatewayConnection, count: int) -> list[RunRow]:
    """The newest runs on the store, newest first, for a server whose cluster is gone; damaged ones are left out."""
    try:
        names = heapq.nlargest(count, filter(is_run_id, os.listdir(_store_of(line) / "runs")))
    except OSError:
        return []
    now_s, rows = time.time(), []
    for name in names:
        try:
            rows.append(find_stored(line, name).row(now_s))
        except (NoSuchRunError, ForbiddenError, StoreError):
            continue
    return rows
