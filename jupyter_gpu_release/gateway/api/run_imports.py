"""A run that was unpacked beside the others becomes one of them: one rename, then one commit."""

from __future__ import annotations

import asyncio
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy.engine import Connection

from ...errors import ConflictError, NoSuchRunError, RequestError, StoreError
from ...protocol.cell import Graph
from ...protocol.lineage import RunFacts
from ...protocol.runs import Outcome, ResourceAsk, RunRequest, RunView
from ...protocol.states import RunState, is_run_id
from ...protocol.wire import encode
from ...store.bundle import incoming_folder
from ...store.files import sync_to_disk
from ...store.layout import RunPaths
from ...store.run_folders import read_manifest, write_manifest
from ..auth.permissions import Caller
from ..db import database, lineage, retention
from ..runs.record import RunRecord
from ..service import GatewayService


async def import_run(service: GatewayService, caller: Caller, name: str, exported_by: str) -> RunRecord:
    """Make a run of ``caller`` of what ``store.bundle`` unpacked as ``name``; a second time changes nothing."""
    if service.users is not None:
        await service.users.make_store(caller.user, service.nodes.store_id)
    store = service.manifests.store_of(caller.user)
    folder = incoming_folder(store, name)
    view, facts = await service.store_threads.run(_read, folder, caller, exported_by, at=folder)
    known = service.runs.find(view.run)
    if known is not None:
        _refuse_other(caller, known, view)
        if known.view.collected_at is not None:
            return await _restore(service, caller, folder, known, view)
        await service.store_threads.begin(shutil.rmtree, folder, at=folder)
        return known
    await service.store_threads.begin(_move, folder, RunPaths.of(store, view.run), view, at=folder)
    await service.ledger.write(partial(_insert, view=view, facts=facts, ordinal=service.runs.next_ordinal()))
    service.holds.note_load(view.run)
    record = service.runs.find(view.run)
    assert record is not None
    return record


def _read(folder: Path, caller: Caller, exported_by: str) -> tuple[RunView, RunFacts]:
    if folder.is_symlink() or not folder.is_dir():
        raise NoSuchRunError(f"nothing was unpacked in {folder}", hint="`jupyter gpu runs import FILE`")
    try:
        manifest = read_manifest(RunPaths(folder))
        view = msgspec.convert(manifest, RunView)
        # no cache key: what is from elsewhere is never reused unasked
        facts = msgspec.convert({**manifest, "used": manifest.get("inputs", []), "cache_key": ""}, RunFacts)
        state = RunState.of(view.state)
    except (msgspec.ValidationError, KeyError) as error:
        raise RequestError(f"the manifest of the imported run is none of a run: {error}") from error
    if not is_run_id(view.run) or not state.is_terminal or view.collected_at is not None:
        raise RequestError(f"{view.run[:40]} is not a run that is over and has its results: not imported")
    view = msgspec.structs.replace(
        view,
        outcome=_without_pickles(view.outcome),
        user=caller.user,
        session="",
        pinned=False,
        seq=1,
        position=None,
        imported_from=exported_by or "somebody",
    )
    try:
        encode([view, facts])
    except OverflowError as error:
        raise RequestError(f"the manifest of the imported run has a number that cannot be: {error}") from error
    return view, facts


def _without_pickles(outcome: Outcome | None) -> Outcome | None:
    """No manifest holds any but by a forger's hand: those of the values are in the graph, which has a digest."""
    if outcome is None:
        return None
    values, error = outcome.values, outcome.error
    if values is not None:
        values = Graph(file=values.file, digest=values.digest)
    if error is not None:
        error = msgspec.structs.replace(error, pickled=b"")
    return msgspec.structs.replace(outcome, values=values, error=error, frames={}, save=None)


def _refuse_other(caller: Caller, known: RunRecord, view: RunView) -> None:
    same = _values_digest(known.view.outcome) == _values_digest(view.outcome) and (
        known.view.submitted_at == view.submitted_at and known.view.user == caller.user
    )
    if not same:
        raise ConflictError(
            f"there is another run {view.run} here, with other results or of another user: not imported",
            hint="nothing was changed; the two cannot be in one cluster",
        )


async def _restore(service: GatewayService, caller: Caller, folder: Path, known: RunRecord, view: RunView) -> RunRecord:
    """The results of a run were collected: they come back from the bundle. May be repeated until it succeeds."""
    async with service.result_collector.paused():
        paths = RunPaths.of(service.manifests.store_of(caller.user), view.run)
        await service.store_threads.begin(_move_back, folder, paths, at=folder)
        await service.ledger.write(partial(retention.forget_removal, run=view.run))
        if known.outcome is not None and view.outcome is not None:
            known.amend_outcome(msgspec.structs.replace(known.outcome, values=view.outcome.values))
        done = service.runs.change(known, at_once=True, collected_at=None, collected_because="", outcome=known.outcome)
        if done is not None:
            await asyncio.shield(done)
        service.holds.note_load(view.run)
    service.audit.write_entry(caller, "run.restore", view.run, detail=f"exported by {view.imported_from}")
    return known


def _move_back(folder: Path, paths: RunPaths) -> None:
    """Everything but the manifest, which is written last and says no longer that the results went."""
    if paths.folder.is_symlink():
        raise StoreError(f"{paths.folder} is a symbolic link: not touched", hint="remove the link by hand")
    try:
        paths.folder.mkdir(mode=0o700, exist_ok=True)
        for entry in sorted(folder.iterdir()):
            target = paths.folder / entry.name
            if entry.name == paths.manifest.name:
                continue
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            os.rename(entry, target)
        sync_to_disk(paths.folder)
    except OSError as error:
        raise StoreError(f"cannot move the results back to {paths.folder}: {error.strerror}") from error
    manifest = read_manifest(paths if paths.manifest.exists() else RunPaths(folder))
    for mark in ("schema_version", "collected_at", "collected_because"):
        manifest.pop(mark, None)
    write_manifest(paths, manifest, durable=True)
    shutil.rmtree(folder)


def _values_digest(outcome: Outcome | None) -> str:
    return outcome.values.digest if outcome is not None and outcome.values is not None else ""


def _move(folder: Path, paths: RunPaths, view: RunView) -> None:
    """A gateway that dies here leaves a folder that no ledger knows; importing again goes on from there."""
    manifest: dict[str, Any] = read_manifest(RunPaths(folder))
    manifest.pop("schema_version")
    marks = {"user": view.user, "session": "", "pinned": False, "imported_from": view.imported_from}
    if paths.folder.is_dir() and any(paths.folder.iterdir()):
        before = read_manifest(paths)
        before.pop("schema_version")
        if before != manifest | marks:
            raise ConflictError(f"{paths.folder} is there already and holds another run", hint="move it away")
        shutil.rmtree(folder)
        return
    write_manifest(RunPaths(folder), manifest | marks, durable=True)
    try:
        paths.folder.parent.mkdir(mode=0o700, exist_ok=True)
        os.rename(folder, paths.folder)
        sync_to_disk(paths.folder.parent)
    except OSError as error:
        raise StoreError(f"cannot move the imported run to {paths.folder}: {error.strerror}") from error


def _insert(connection: Connection, view: RunView, facts: RunFacts, ordinal: int) -> None:
    """Insert a run with code, inputs and environment, so that it can be shown and its lineage followed."""
    request = RunRequest(view.run, "", ResourceAsk(view.gpus, view.ranks), b"", code=facts.code)
    request = msgspec.structs.replace(request, versions=facts.versions, used=facts.used)
    database.insert_run(connection, view, ordinal, request)
    lineage.put_submission(connection, request)
    lineage.put_environment(connection, request, facts.environment)
    database.update_run(connection, view, view.outcome)
