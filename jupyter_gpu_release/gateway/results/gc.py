"""Collecting: asks the policy which results go, marks them in the ledger, removes them, frees what nobody refers to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial, reduce
from pathlib import Path

import msgspec
from sqlalchemy.engine import Engine

from ...errors import StoreError
from ...host.threads import StoreThreads
from ...protocol.admin import GcDocument, RemovalRow, StoredRow, StudyRow
from ...protocol.cell import Graph
from ...protocol.config import RetentionPolicy
from ...protocol.rest import DOCUMENT_VERSION
from ...protocol.runs import Outcome, RunView
from ...protocol.states import RunState
from ...store.gc.policy import (
    Removal,
    RunSpace,
    StoredResults,
    choose_removals,
    choose_studies,
    measure_space,
    why_kept,
)
from ...store.gc.sweep import GRACE_S, store_time_s, sweep_blobs
from ...store.gc.trash import Trash
from ...store.layout import RunPaths, values_name
from ...store.private_stores import acting_for
from ...store.run_contents import Footprint, measure_folder, run_folders
from ...store.run_folders import saved_since
from ...store.saved_kernels import sweep_saved_kernels
from ...store.studies import list_studies, remove_study
from ...units import format_seconds
from ..db import retention
from ..db.retention import LastUse
from ..db.writer import LedgerWriter
from ..runs.live_runs import RunTable
from .held_results import ResultHolds

log = logging.getLogger(__name__)


class ResultCollector:
    """One collection at a time; all that reads or deletes files is done in threads."""

    def __init__(
        self,
        store: Path,
        engine: Engine,
        ledger: LedgerWriter,
        runs: RunTable,
        keeping: ResultHolds,
        threads: StoreThreads,
        *,
        list_stores: Callable[[], list[Path]] | None = None,
    ) -> None:
        """``list_stores``: those of the users, where each has one; asked in a thread."""
        self._store = store
        self._list_stores = list_stores
        self._trash = Trash(store)
        self._engine = engine
        self._ledger = ledger
        self._runs = runs
        self._keeping = keeping
        self._threads = threads
        self._busy = asyncio.Lock()

    async def collect(self, policy: RetentionPolicy, *, user: str | None = None, dry_run: bool = False) -> GcDocument:
        """Collect once. ``user``: only this user's results are removed (all users' where None).

        Raises :class:`StoreError` when the store cannot be read at all; what goes wrong with one run is a note.
        """
        await self._threads.run(self._store.exists)  # one that hangs is told before anybody waits for it
        async with self._busy:
            documents = [await self._collect(policy, store, user, dry_run=dry_run) for store in await self._stores()]
            return reduce(_together, documents)

    async def _stores(self) -> list[Path]:
        return [self._store, *(await self._threads.begin(self._list_stores) if self._list_stores is not None else ())]

    def _begin(self, policy: RetentionPolicy, store: Path, *, dry_run: bool) -> _Collection:
        return _Collection(policy, store, self._trash if store == self._store else Trash(store), dry_run=dry_run)

    async def _collect(self, policy: RetentionPolicy, store: Path, user: str | None, *, dry_run: bool) -> GcDocument:
        work = self._begin(policy, store, dry_run=dry_run)
        if not dry_run:
            await self._finish_removals(work)
        held = self._keeping.held()
        saving_since_s = self._saving_since()
        results = await self._threads.begin(self._survey, work, held)
        for removal in work.decide(results, user):
            await self._remove(removal, work)
        await self._threads.begin(self._remove_studies, work, user, self._searching(), at=store)
        await self._threads.begin(self._sweep, work, saving_since_s, at=store)
        return work.document()

    async def used_bytes(self) -> dict[str, int]:
        """User → the bytes that runs take of the stores; raises :class:`StoreError`."""
        await self._threads.run(self._store.exists)
        found: Counter[str] = Counter()
        for store in await self._stores():
            work = self._begin(RetentionPolicy(), store, dry_run=True)
            for space in measure_space(await self._threads.begin(self._survey, work, set())):
                found[space.user] += space.bytes
        return dict(found)

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Nothing is collected meanwhile."""
        async with self._busy:
            yield

    async def tidy(self, policy: RetentionPolicy) -> None:
        """Do what the gateway does by itself: collect where there are limits, else only finish what was begun."""
        try:
            if policy.has_limits:
                await self.collect(policy)
            else:
                async with self._busy:
                    for store in await self._stores():
                        await self._finish_removals(self._begin(policy, store, dry_run=False))
        except StoreError as error:
            log.warning("collecting: %s", error)

    # ------------------------------------------------------------------------------------- look
    def _survey(self, work: _Collection, held: set[str]) -> list[StoredResults]:
        """Read what the ledger knows and what the store holds."""
        with acting_for(work.store) if self._list_stores is not None else contextlib.nullcontext():
            work.footprints = [measure_folder(folder) for folder in run_folders(work.store)]
        with self._engine.connect() as connection:
            views = retention.views_of(connection, [found.folder.name for found in work.footprints])
            uses = retention.all_uses(connection)
        work.unknown = [found for found in work.footprints if found.folder.name not in views]
        open_sessions = self._keeping.open_sessions()
        rows = []
        for found in work.footprints:
            view = views.get(found.folder.name)
            if view is not None and view.collected_at is None:
                is_held = view.run in held or view.session in open_sessions
                rows.append(_results(view, found, uses.get(view.run, LastUse()), held=is_held))
        return rows

    def _saving_since(self) -> float:
        """Since when the run has been saving that has been at it for longest: its blobs may have no graph yet."""
        saving = [record.view.gone_at for record in self._runs.live() if record.state is RunState.PERSISTING]
        return min([since for since in saving if since is not None], default=float("inf"))

    # ----------------------------------------------------------------------------------- remove
    async def _remove(self, removal: Removal, work: _Collection) -> None:
        record = self._runs.find(removal.run)
        if record is None or record.view.pinned or self._keeping.is_held(record.view):  # since we looked
            return
        work.removals.append(removal)
        if work.dry_run:
            return
        at_s = time.time()
        await self._ledger.write(
            partial(retention.begin_removal, run=removal.run, reason=removal.reason, size=removal.bytes, at_s=at_s)
        )
        if record.outcome is not None:
            record.amend_outcome(_without_values(record.outcome))
        done = self._runs.change(record, collected_at=at_s, collected_because=removal.reason, outcome=record.outcome)
        if done is not None:
            await done
        log.info("run %s: its results go: %s", removal.run, removal.reason)
        await self._take(removal.run, removal.reason, work)

    async def _finish_removals(self, work: _Collection) -> None:
        """Finish the removals that an earlier life of the gateway began."""
        with self._engine.connect() as connection:
            begun = retention.unfinished_removals(connection)
        for run, reason in begun:
            folder = RunPaths.of(work.store, run).folder
            if self._list_stores is None or await self._threads.begin(folder.exists, at=work.store):
                await self._take(run, reason, work)
        for run in await self._threads.begin(lambda: list(work.trash.unfinished_runs()), at=work.store):
            await self._threads.begin(work.trash.delete_entry, run, at=work.store)

    async def _take(self, run: str, reason: str, work: _Collection) -> None:
        try:
            before = await self._threads.begin(measure_folder, RunPaths.of(work.store, run).folder, at=work.store)
            await self._threads.begin(work.trash.remove_results, run, reason, time.time(), at=work.store)
        except StoreError as error:
            work.note(str(error))
            return
        work.freed_bytes += before.own_bytes
        await self._ledger.write(partial(retention.end_removal, run=run))

    def _searching(self) -> set[str]:
        """Users with a sweep under way."""
        return {record.view.user for record in self._runs.live() if record.view.sweep}

    def _remove_studies(self, work: _Collection, user: str | None, searching: set[str]) -> None:
        for study, reason in choose_studies(list_studies(work.store), work.policy, searching, time.time()):
            try:
                if user in (None, study.user) and (work.dry_run or remove_study(study)):
                    work.studies.append(StudyRow(study.name, study.user, reason, study.bytes))
                    work.freed_bytes += study.bytes
            except StoreError as error:
                work.note(str(error))

    # ------------------------------------------------------------------------------------ sweep
    def _sweep(self, work: _Collection, saving_since_s: float) -> None:
        """Blobs, and what writers that died left behind: nothing that was touched within the grace."""
        saving_since_s = min(saving_since_s, self._saving_elsewhere(work))
        before_s = min(store_time_s(work.store), saving_since_s) - GRACE_S
        self._sweep_orphans(work, before_s)
        if not work.dry_run:
            self._sweep_imports(work.store, before_s)
        removed = {removal.run for removal in work.removals}
        if not work.dry_run:  # look again: graphs went
            kept = [
                measure_folder(f.folder) if f.folder.name in removed else f
                for f in work.footprints
                if f.folder.exists()
            ]
        else:
            kept = [found for found in work.footprints if found.folder.name not in removed | set(work.orphans)]
        swept = sweep_blobs(work.store, kept, before_s, dry_run=work.dry_run)
        work.blobs = swept.blobs
        work.freed_bytes += swept.bytes + sweep_saved_kernels(
            work.store, store_time_s(work.store), dry_run=work.dry_run
        )
        for note in swept.notes:
            work.note(note)

    def _saving_elsewhere(self, work: _Collection) -> float:
        """Like :meth:`_saving_since`, for runs of other clusters on this store: their manifests say it."""
        saving = {found.folder.name: saved_since(RunPaths(found.folder)) for found in work.unknown}
        since = {run: at_s for run, at_s in saving.items() if at_s is not None}
        if not since:
            return float("inf")
        oldest = min(since, key=lambda run: since[run])
        if time.time() - since[oldest] > GRACE_S:
            work.note(
                f"run {oldest} of another cluster has been writing its results for "
                f"{format_seconds(time.time() - since[oldest])}: no blob that is newer is freed before it is over "
                "(if that cluster is no more, move the run's folder away)"
            )
        return since[oldest]

    def _sweep_orphans(self, work: _Collection, before_s: float) -> None:
        """A folder without a manifest was never accepted by any gateway; one with a manifest is somebody's run."""
        strangers = [found for found in work.unknown if found.has_manifest]
        if strangers:
            work.note(
                f"{len(strangers)} runs on the store are not in this gateway's ledger: not touched "
                f"(of another cluster, or of an earlier ledger), such as {strangers[0].folder.name}"
            )
        for found in work.unknown:
            if not found.has_manifest and found.changed_at < before_s:
                work.orphans.append(found.folder.name)
                work.freed_bytes += found.own_bytes
                if not work.dry_run:
                    work.trash.remove_folder(found.folder.name)
        for path, changed_at in (temp for found in work.footprints for temp in found.temp_files):
            if changed_at < before_s and not work.dry_run:
                path.unlink(missing_ok=True)

    def _sweep_imports(self, store: Path, before_s: float) -> None:
        """Remove what imports that were killed left behind."""
        for folder in (store / "incoming").glob("*"):
            if not folder.is_symlink() and measure_folder(folder).changed_at < before_s:
                shutil.rmtree(folder, ignore_errors=True)


class _Collection:
    """One collection's findings."""

    def __init__(self, policy: RetentionPolicy, store: Path, trash: Trash, *, dry_run: bool) -> None:
        self.policy = policy
        self.store = store
        self.trash = trash
        self.dry_run = dry_run
        self.footprints: list[Footprint] = []
        #: folders of runs that the ledger does not know
        self.unknown: list[Footprint] = []
        self.stored: list[RunSpace] = []
        self.removals: list[Removal] = []
        self.orphans: list[str] = []
        self.studies: list[StudyRow] = []
        self.freed_bytes = 0
        self.blobs = 0
        self._kept: Counter[str] = Counter()
        self._notes: list[str] = []

    def decide(self, results: list[StoredResults], user: str | None) -> list[Removal]:
        now_s = time.time()
        removals = choose_removals(results, self.policy, now_s)
        chosen = [removal for removal in removals if user in (None, removal.user)]
        if self.dry_run:
            self.stored = [space for space in measure_space(results) if user in (None, space.user)]
        if self.policy.has_limits:
            self._kept.update(why for found in results if (why := why_kept(found, now_s)))
        return chosen

    def note(self, text: str) -> None:
        self._notes.append(text)
        log.warning("%s", text)

    def document(self) -> GcDocument:
        removals = [RemovalRow(removal.run, removal.user, removal.reason, removal.bytes) for removal in self.removals]
        freed = self.freed_bytes
        if self.dry_run:
            freed += sum(_own_bytes(self.footprints, removal.run) for removal in self.removals)
        return GcDocument(
            DOCUMENT_VERSION,
            self.dry_run,
            self.policy.has_limits,
            removals,
            freed,
            self.blobs,
            self.orphans,
            dict(self._kept),
            self._notes,
            studies=self.studies,
            stored=[StoredRow(space.run, space.user, space.notebook, space.bytes) for space in self.stored],
        )


def _together(first: GcDocument, second: GcDocument) -> GcDocument:
    return msgspec.structs.replace(
        first,
        removals=[*first.removals, *second.removals],
        freed_bytes=first.freed_bytes + second.freed_bytes,
        blobs=first.blobs + second.blobs,
        orphans=[*first.orphans, *second.orphans],
        kept=dict(Counter(first.kept) + Counter(second.kept)),
        notes=[*first.notes, *second.notes],
        studies=[*first.studies, *second.studies],
        stored=[*first.stored, *second.stored],
    )


def _without_values(outcome: Outcome) -> Outcome:
    """The name of the values stays (it says which they were); small ones that travel inline go, too."""
    found = outcome.values
    values = Graph(file=values_name(found), digest=found.digest) if found is not None and found.digest else None
    return msgspec.structs.replace(outcome, values=values, frames={})


def _own_bytes(footprints: Iterable[Footprint], run: str) -> int:
    return sum(found.own_bytes for found in footprints if found.folder.name == run)


def _results(view: RunView, found: Footprint, use: LastUse, *, held: bool) -> StoredResults:
    is_over = RunState.of(view.state).is_terminal
    return StoredResults(
        view.run,
        view.user,
        view.notebook,
        view.submitted_at,
        (view.finished_at or 0.0) if is_over else None,
        found.own_bytes,
        found.shared,
        view.pinned,
        held,
        use.loaded_at,
        use.reused_at,
    )
