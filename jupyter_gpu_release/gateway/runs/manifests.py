"""Writes run folders and their manifests off the event loop: the newest state wins, the final one is durable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...errors import ClusterError, StoreError, StoreSilentError
from ...host.threads import StoreThreads
from ...options.run_options import written_options
from ...protocol.lineage import Environment
from ...protocol.runs import Outcome, RunRequest, RunView
from ...protocol.states import RunState
from ...store.layout import RunPaths, values_name
from ...store.private_stores import acting
from ...store.run_folders import create_run_folder, drop_saves, read_manifest, require_store, write_manifest

log = logging.getLogger(__name__)
#: changes close together make one file; of a run that is shorter only its end is written
_DEBOUNCE_S = 1.0
#: between tries while the store refuses
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


@dataclass(frozen=True)
class _Pending:
    """A manifest that is to be written: built only when it is, since most are replaced before."""

    user: str
    #: None: nothing but ``facts`` is known here, and the file that is there is amended
    of: tuple[RunView, Outcome | None, RunRequest, Environment | None] | None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Tell if it is written at once, and durably."""
        return self.of is None or RunState.of(self.of[0].state).is_terminal

    def document(self, paths: RunPaths) -> dict[str, Any]:
        """The whole manifest; empty when there is none to be amended."""
        if self.of is not None:
            return {**manifest_of(*self.of), **self.facts}
        if not paths.manifest.exists():
            return {}
        known = read_manifest(paths)
        known.pop("schema_version")
        return {**known, **self.facts}


class Manifests:
    """One writer per run at a time; a store that is slow or full delays nobody else."""

    def __init__(self, store: Path, threads: StoreThreads, store_of: Callable[[str], Path] | None = None) -> None:
        """``store_of``: a user's own store, where each has one; asked in threads, and where it is known already."""
        self._store = store
        self._store_of = store_of
        self.threads = threads
        self._newest: dict[str, _Pending] = {}
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}

    def create_folder(self, user: str, run: str) -> asyncio.Future[RunPaths]:
        """Make the run's folder, beginning now, in a thread; the future raises :class:`StoreError`."""
        store = self.store_of(user)
        return self.threads.begin(self._create, store, run, at=store)

    def _create(self, store: Path, run: str) -> RunPaths:
        require_store(store)
        return create_run_folder(store, run)

    def store_of(self, user: str) -> Path:
        """The store in which the user's runs are; raises :class:`ClusterError` for a user without an account."""
        return self._store if self._store_of is None else self._store_of(user)

    def folder(self, user: str, run: str) -> str:
        """The run's folder as the nodes see it."""
        return str(RunPaths.of(self.store_of(user), run).folder)

    async def may_have_values(self, user: str, run: str, outcome: Outcome | None) -> bool:
        """Like :meth:`has_values`, from an event loop; a store that does not say has what was once durable."""
        try:
            return await self.threads.run(self.has_values, user, run, outcome)
        except StoreSilentError:
            return outcome is None or outcome.values is None or bool(outcome.values.digest)

    def has_values(self, user: str, run: str, outcome: Outcome | None) -> bool:
        """Tell if the values that ``outcome`` speaks of are on the store; waits for it."""
        values = outcome.values if outcome is not None else None
        if values is None:
            return True
        path = RunPaths.of(self.store_of(user), run).folder / values_name(values)
        return bool(values.digest) and (path.exists() if self._store_of is None else acting(path, path.exists)())

    def write_manifest(
        self, view: RunView, outcome: Outcome | None, request: RunRequest, environment: Environment | None = None
    ) -> None:
        """Write the run's manifest soon (at once when it is terminal)."""
        self._put(view.run, _Pending(view.user, (view, outcome, request, environment)))

    def amend(self, user: str, run: str, **facts: Any) -> None:
        """Change some facts of a manifest that is there, at once; nothing else of it is known here."""
        known = self._newest.get(run, _Pending(user, None))
        self._put(run, _Pending(user, known.of, {**known.facts, **facts}))

    async def flush(self) -> None:
        """Write what waits, and wait for what is being written."""
        for run in list(self._due):
            self._begin(run)
        if self._writing:
            await asyncio.wait(list(self._writing.values()), timeout=5.0)

    def _put(self, run: str, pending: _Pending) -> None:
        self._newest[run] = pending
        if run in self._writing:
            return
        if pending.is_final:
            self._begin(run)
        elif run not in self._due:
            self._due[run] = asyncio.get_running_loop().call_later(_DEBOUNCE_S, self._begin, run)

    def _begin(self, run: str) -> None:
        if (timer := self._due.pop(run, None)) is not None:
            timer.cancel()
        self._writing[run] = asyncio.get_running_loop().create_task(self._write(run))

    async def _write(self, run: str) -> None:
        """Write until the newest is on the store: with a stale one, or none, a run looks wrong to everybody else."""
        pause_s = _FIRST_PAUSE_S
        try:
            await asyncio.sleep(0)  # what is told of a run's end in the same moment goes along
            while run in self._newest:
                pending = self._newest.pop(run)
                try:
                    await self.threads.begin(self._write_now, run, pending)
                except (StoreError, ClusterError) as error:
                    if pause_s == _FIRST_PAUSE_S:
                        log.warning("run %s: tried again until it works: %s", run, error)
                    self._newest.setdefault(run, pending)
                    await asyncio.sleep(pause_s)
                    pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
        finally:
            self._newest.pop(run, None)
            self._writing.pop(run, None)

    def _write_now(self, run: str, pending: _Pending) -> None:
        store = self.store_of(pending.user)
        write = self._write_to if self._store_of is None else acting(store, self._write_to)
        write(store, run, pending)

    def _write_to(self, store: Path, run: str, pending: _Pending) -> None:
        require_store(store)
        paths = RunPaths.of(store, run)
        manifest = pending.document(paths)
        if not manifest:
            return
        if not paths.folder.is_dir():
            create_run_folder(store, manifest["run"])
        write_manifest(paths, manifest, durable=pending.is_final)
        if pending.is_final and pending.of is not None:
            _tidy(paths, *pending.of[:2])


def _tidy(paths: RunPaths, view: RunView, outcome: Outcome | None) -> None:
    """A run that is over goes on from nothing any more."""
    if (view.restartable or view.attempts) and outcome is not None and outcome.values is not None:
        drop_saves(paths, values_name(outcome.values))


def manifest_of(
    view: RunView, outcome: Outcome | None, request: RunRequest, environment: Environment | None = None
) -> dict[str, Any]:
    """The manifest of a run, for the store: plain JSON values, no payload, no secret."""
    facts: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(view, outcome=None))
    for internal in ("seq", "position"):
        facts.pop(internal, None)
    facts |= {"code": request.code, "versions": request.versions, "ask": msgspec.to_builtins(request.ask)}
    facts |= {"timeout_s": request.timeout_s, "wait_s": request.wait_s, "fresh": request.fresh}
    facts |= {"inputs": [msgspec.to_builtins(used) for used in request.used], "cache_key": request.cache_key}
    facts["options"] = written_options(request)
    if environment is not None:
        facts["environment"] = msgspec.to_builtins(environment)
    if outcome is not None:
        facts["outcome"] = _outcome_facts(outcome)
    return facts


def _outcome_facts(outcome: Outcome) -> dict[str, Any]:
    bare = msgspec.structs.replace(outcome, values=None, error=None, frames={})
    facts: dict[str, Any] = msgspec.to_builtins(bare)
    if outcome.error is not None:
        error = outcome.error
        facts["error"] = {"ename": error.ename, "evalue": error.evalue, "code": error.code, "mend": error.hint}
        facts["error"]["traceback"] = error.traceback
    if outcome.values is not None and outcome.values.digest:
        facts["values"] = {"file": values_name(outcome.values), "digest": outcome.values.digest}
    return facts
