"""The page of one run: what the gateway says of it, and what its folder on the store adds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from ...client.rest import GatewayRequests
from ...errors import ForbiddenError, GatewayUnavailableError, NoSuchRunError, StoreError
from ...host.threads import StoreThreads
from ...presentation.run_row import own_row
from ...presentation.sweep_rows import fold_sweeps
from ...protocol.lineage import Lineage, RunFacts
from ...protocol.rest import RunRow
from ...protocol.runs import FileInfo, GpuUse, Outcome
from ...store.layout import RunPaths
from ...store.stored_run import StoredRun
from ..gateway import GatewayConnection
from ..models import DOCUMENT_VERSION, RunPage
from .files import list_files, open_file, open_record
from .stored import find_stored, is_own, newest_stored, paths_of

_CHUNK_BYTES = 256 << 10
#: seconds for which a list of files is shown again, unless the run is in another state
_FRESH_S = 3.0


class RunRecords:
    """Answers what is known of runs, for who asks through ``line``. Called on the server's event loop.

    The store is read in threads of its own, and never waited for without a limit.
    """

    def __init__(self) -> None:
        #: for all that is read of the store
        self.threads = StoreThreads()
        self._listings = Listings(self.threads)

    async def newest_stored(self, line: GatewayConnection, count: int, *, is_gone: bool) -> list[RunRow]:
        """The newest runs on the store, for when there is no cluster to ask, or none that answers."""
        return await self.threads.run(partial(newest_stored, line, count, is_gone=is_gone))

    async def page(self, line: GatewayConnection, run: str) -> RunPage:
        """All of one run.

        Raises
        ------
        NoSuchRunError, ForbiddenError, GatewayUnavailableError, StoreError
            There is no run that may be seen, or nobody answers.
        """
        if not await asyncio.to_thread(line.is_there):
            return await self._stored_page(line, run, is_gone=True)
        try:
            return await self._told_page(line, run)
        except GatewayUnavailableError as silent:
            try:
                return await self._stored_page(line, run, is_gone=False)
            except (NoSuchRunError, StoreError):
                raise silent from None

    async def _stored_page(self, line: GatewayConnection, run: str, *, is_gone: bool) -> RunPage:
        stored = await self.threads.run(partial(find_stored, line, run, is_gone=is_gone))
        files = await self._files(line, run, stored.view.state)
        row = own_row(stored.view, time.time())
        return _page(line, row, stored.lineage(), stored, files)

    async def _told_page(self, line: GatewayConnection, run: str) -> RunPage:
        try:
            row = await line.ask(GatewayRequests.run, run)
        except NoSuchRunError:
            return await self._sweep_page(line, run)
        if row.sweep == run:
            return await self._sweep_page(line, run)
        lineage = await line.ask(GatewayRequests.lineage, run)
        mine = is_own(line, row.user)
        await line.learn_store()
        known = await self._read(line, run) if mine else None
        files = await self._files(line, run, row.state) if mine else []
        return _page(line, row, lineage, known, files, is_cluster_known=True)

    async def _sweep_page(self, line: GatewayConnection, sweep: str) -> RunPage:
        """A sweep and its trials; code, options and inputs are those of its first trial."""
        runs = (await line.ask(GatewayRequests.trials, sweep)).runs
        if not runs:
            raise NoSuchRunError(f"there is no run {sweep}", hint="list them: `jupyter gpu runs`")
        (row,) = fold_sweeps(runs)
        trials = [each for each in reversed(runs) if each.run != sweep]
        lineage = await line.ask(GatewayRequests.lineage, (trials or runs)[0].run)
        page = _page(line, row, lineage, None, [], is_cluster_known=True)
        return msgspec.structs.replace(page, trials=trials)

    async def _read(self, line: GatewayConnection, run: str) -> StoredRun | None:
        """Its record, where this server sees the store and there is one already."""
        try:
            return await self.threads.run(lambda: StoredRun.read(paths_of(line, run), opener=open_record))
        except StoreError:
            return None

    async def _files(self, line: GatewayConnection, run: str, state: str) -> list[FileInfo]:
        try:
            return await self._listings.of(paths_of(line, run), state)
        except StoreError:
            return []

    async def open_file(self, line: GatewayConnection, run: str, path: str) -> BinaryIO:
        """Open a file of the run's folder; its owner may.

        Raises :class:`NoSuchRunError`, :class:`ForbiddenError`, :class:`StoreError`.
        """
        return await self.threads.run(open_file, await self._own_folder(line, run), path)

    async def _own_folder(self, line: GatewayConnection, run: str) -> RunPaths:
        if await asyncio.to_thread(line.is_there):
            row = await line.ask(GatewayRequests.run, run)
            if not is_own(line, row.user):
                raise ForbiddenError(f"the files of run {run} are {row.user}'s", hint="ask for a copy")
            await line.learn_store()
        else:
            await self.threads.run(find_stored, line, run)
        return paths_of(line, run)

    async def chunks(self, file: BinaryIO) -> AsyncGenerator[bytes, None]:
        """The file's content, piece by piece; closes it."""
        try:
            while chunk := await self.threads.run(file.read, _CHUNK_BYTES):
                yield chunk
        finally:
            file.close()


class Listings:
    """Files of runs, as they were listed last: a folder may be large and its store slow, and pages ask often."""

    def __init__(self, threads: StoreThreads) -> None:
        self._threads = threads
        self._known: dict[tuple[Path, str], tuple[float, list[FileInfo]]] = {}
        self._walks: dict[Path, asyncio.Future[list[FileInfo]]] = {}

    async def of(self, paths: RunPaths, state: str) -> list[FileInfo]:
        """The files of a run in this state; one walk at a time. Raises :class:`StoreError` when it takes too long."""
        now_s, folder = time.monotonic(), paths.folder
        self._known = {key: found for key, found in self._known.items() if now_s - found[0] < _FRESH_S}
        if found := self._known.get((folder, state)):
            return found[1]
        walk = self._walks.get(folder)
        if walk is None:
            walk = self._walks[folder] = self._threads.begin(list_files, paths)
            walk.add_done_callback(lambda _: self._walks.pop(folder))
        files = await self._threads.wait_for_answer(walk)
        self._known[folder, state] = (time.monotonic(), files)
        return files


def _page(
    line: GatewayConnection,
    row: RunRow,
    lineage: Lineage,
    stored: StoredRun | None,
    files: list[FileInfo],
    *,
    is_cluster_known: bool = False,
) -> RunPage:
    facts = lineage.facts if lineage.facts != RunFacts() or stored is None else stored.facts
    outcome = stored.view.outcome if stored is not None else None
    ended = outcome or Outcome("")
    return RunPage(
        schema_version=DOCUMENT_VERSION,
        now=time.time(),
        run=row,
        mine=is_own(line, row.user),
        code=facts.code,
        options=facts.options,
        started_at=ended.started_s or row.running_at,
        ended_at=ended.ended_s,
        gpu_use=_use(line, row.run, ended.gpu_use),
        inputs=facts.used,
        tracked=lineage.tracked,
        runs=lineage.runs,
        links=lineage.links,
        reused=lineage.reused,
        files=files,
        environment=msgspec.structs.replace(facts.environment, unknown=[]),
        is_cluster_known=is_cluster_known,
    )


def _use(line: GatewayConnection, run: str, measured: GpuUse | None) -> GpuUse | None:
    """The use as its node measured it; while it runs, and for a while after, as this server has seen it."""
    if measured is not None and measured.utilization:
        return measured
    return line.use.of(run) or measured
