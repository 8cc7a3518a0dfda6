"""Writes run folders and their manifests off the event loop: the newest state wins, the final one is durable."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec

from ..core.messages import Outcome, RunRequest, RunView
from ..core.provenance import Environment
from ..core.run import RunState
from ..errors import StoreError
from ..storage.layout import VALUES_FILE, RunPaths
from ..storage.runs import create_run_folder, read_manifest, require_store, write_manifest

log = logging.getLogger(__name__)
#: changes close together make one file
_DEBOUNCE_S = 0.1
#: between tries while the store refuses
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


class Manifests:
    """One writer per run at a time; a store that is slow or full delays nobody else."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._newest: dict[str, dict[str, Any]] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}

    def create_folder(self, run: str) -> asyncio.Future[RunPaths]:
        """Make the run's folder, beginning now, in a thread; the future raises :class:`StoreError`."""
        return asyncio.get_running_loop().run_in_executor(None, self._create, run)

    def _create(self, run: str) -> RunPaths:
        require_store(self._store)
        return create_run_folder(self._store, run)

    def folder(self, run: str) -> str:
        """The run's folder as the nodes see it."""
        return str(RunPaths.of(self._store, run).folder)

    def has_values(self, run: str, outcome: Outcome | None) -> bool:
        """Whether the values that ``outcome`` speaks of are on the store."""
        values = outcome.values if outcome is not None else None
        if values is None:
            return True
        return bool(values.digest) and (RunPaths.of(self._store, run).folder / VALUES_FILE).exists()

    def note(
        self, view: RunView, outcome: Outcome | None, request: RunRequest, environment: Environment | None = None
    ) -> None:
        """Write the run's manifest soon (at once when it is terminal)."""
        self._newest[view.run] = manifest_of(view, outcome, request, environment)
        if view.run not in self._writing:
            task = asyncio.get_running_loop().create_task(self._write(view.run))
            self._writing[view.run] = task

    def amend(self, run: str, **facts: Any) -> None:
        """Change some facts of a manifest that is there, soon; nothing else of it is known here."""
        self._newest[run] = {**self._newest.get(run, {}), **facts}
        if run not in self._writing:
            self._writing[run] = asyncio.get_running_loop().create_task(self._write(run))

    async def flush(self) -> None:
        """Wait for what is being written."""
        if self._writing:
            await asyncio.wait(list(self._writing.values()), timeout=5.0)

    async def _write(self, run: str) -> None:
        """Until the newest is on the store: with a stale one, or none, a run is not what it says to anybody else."""
        paths, pause_s = RunPaths.of(self._store, run), _FIRST_PAUSE_S
        try:
            while run in self._newest:
                if not _is_final(self._newest[run]):
                    await asyncio.sleep(_DEBOUNCE_S)
                manifest = self._newest.pop(run)
                try:
                    await asyncio.to_thread(self._write_now, paths, manifest)
                except StoreError as error:
                    if pause_s == _FIRST_PAUSE_S:
                        log.warning("run %s: tried again until it works: %s", run, error)
                    self._newest.setdefault(run, manifest)
                    await asyncio.sleep(pause_s)
                    pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
        finally:
            self._newest.pop(run, None)
            self._writing.pop(run, None)

    def _write_now(self, paths: RunPaths, manifest: dict[str, Any]) -> None:
        require_store(self._store)
        if "state" not in manifest:  # an amendment
            if not paths.manifest.exists():
                return
            manifest = {**read_manifest(paths), **manifest}
            manifest.pop("schema_version")
        if not paths.folder.is_dir():
            create_run_folder(self._store, manifest["run"])
        write_manifest(paths, manifest, durable=_is_final(manifest))


def _is_final(manifest: dict[str, Any]) -> bool:
    return "state" not in manifest or RunState.of(manifest["state"]).is_terminal


def manifest_of(
    view: RunView, outcome: Outcome | None, request: RunRequest, environment: Environment | None = None
) -> dict[str, Any]:
    """What is on the store about a run: plain JSON values, no payload, no secret."""
    facts: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(view, outcome=None))
    for internal in ("seq", "position"):
        facts.pop(internal, None)
    facts |= {"code": request.code, "versions": request.versions, "ask": msgspec.to_builtins(request.ask)}
    facts |= {"timeout_s": request.timeout_s, "wait_s": request.wait_s, "fresh": request.fresh}
    facts |= {"inputs": [msgspec.to_builtins(used) for used in request.used], "cache_key": request.cache_key}
    if environment is not None:
        facts["environment"] = msgspec.to_builtins(environment)
    if outcome is not None:
        facts["outcome"] = _outcome_facts(outcome)
    return facts


def _outcome_facts(outcome: Outcome) -> dict[str, Any]:
    bare = msgspec.structs.replace(outcome, values=None, error=None)
    facts: dict[str, Any] = msgspec.to_builtins(bare)
    if outcome.error is not None:
        error = outcome.error
        facts["error"] = {"ename": error.ename, "evalue": error.evalue, "code": error.code, "mend": error.mend}
        facts["error"]["traceback"] = error.traceback
    if outcome.values is not None and outcome.values.digest:
        facts["values"] = {"file": outcome.values.file or VALUES_FILE, "digest": outcome.values.digest}
    return facts
