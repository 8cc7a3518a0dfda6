"""The page of one run: what the gateway says of it, and what its folder on the store adds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import BinaryIO

import msgspec

from ...errors import ForbiddenError, StoreError
from ...protocol.lineage import Lineage, Link, RunFacts
from ...protocol.rest import RunRow
from ...protocol.runs import FileInfo, GpuUse, Outcome
from ...protocol.states import is_run_id
from ...store.layout import RunPaths
from ...store.threads import StoreThreads
from ..gateway import GatewayConnection
from ..models import DOCUMENT_VERSION, RunPage
from .files import list_files, open_file
from .stored import StoredRun, find_stored, is_own, newest_stored, paths_of

_CHUNK_BYTES = 256 << 10


class RunRecords:
    """Answers what is known of runs, for who asks through ``line``. Called on the server's event loop.

    The store is read in threads of its own, and never waited for without a limit.
    """

    def __init__(self) -> None:
        self._threads = StoreThreads()

    async def newest_stored(self, line: GatewayConnection, count: int) -> list[RunRow]:
        """The newest runs on the store, for when there is no cluster to ask."""
        return await self._threads.run(newest_stored, line, count)

    async def page(self, line: GatewayConnection, run: str) -> RunPage:
        """All of one run.

        Raises
        ------
        NoSuchRunError, ForbiddenError, GatewayUnavailableError, StoreError
            There is no run that may be seen, or nobody answers.
        """
        if not await asyncio.to_thread(line.is_there):
            stored = await self._threads.run(find_stored, line, run)
            return _page(line, stored.row(time.time()), _lineage_of(stored), stored, await self._files(line, run))
        row, lineage = await asyncio.gather(
            line.ask(lambda client: client.run(run)), line.ask(lambda client: client.lineage(run))
        )
        mine = is_own(line, row.user)
        await line.learn_store()
        known = await self._read(line, run) if mine else None
        return _page(line, row, lineage, known, await self._files(line, run) if mine else [], is_cluster_known=True)

    async def _read(self, line: GatewayConnection, run: str) -> StoredRun | None:
        """Its record, where this server sees the store and there is one already."""
        try:
            return await self._threads.run(lambda: StoredRun.read(paths_of(line, run)))
        except StoreError:
            return None

    async def _files(self, line: GatewayConnection, run: str) -> list[FileInfo]:
        try:
            return await self._threads.run(lambda: list_files(paths_of(line, run)))
        except StoreError:
            return []

    async def open_file(self, line: GatewayConnection, run: str, path: str) -> BinaryIO:
        """Open a file of the run's folder; its owner may.

        Raises :class:`NoSuchRunError`, :class:`ForbiddenError`, :class:`StoreError`.
        """
        return await self._threads.run(open_file, await self._own_folder(line, run), path)

    async def _own_folder(self, line: GatewayConnection, run: str) -> RunPaths:
        if await asyncio.to_thread(line.is_there):
            row = await line.ask(lambda client: client.run(run))
            if not is_own(line, row.user):
                raise ForbiddenError(f"the files of run {run} are {row.user}'s", hint="ask for a copy")
            await line.learn_store()
        else:
            await self._threads.run(find_stored, line, run)
        return paths_of(line, run)

    async def chunks(self, file: BinaryIO) -> AsyncGenerator[bytes, None]:
        """The file's content, piece by piece; closes it."""
        try:
            while chunk := await self._threads.run(file.read, _CHUNK_BYTES):
                yield chunk
        finally:
            file.close()


def _lineage_of(stored: StoredRun) -> Lineage:
    """The part of its lineage that a manifest tells: not what was made from it."""
    run, facts = stored.view.run, stored.facts
    links = [Link(run, used.name, used.run) for used in facts.used if is_run_id(used.run)]
    tracked = stored.view.outcome.tracked if stored.view.outcome is not None else []
    return Lineage(run, facts, tracked, [], links)


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
        schema_version=DOCUMENT_VERSION, now=time.time(), run=row, mine=is_own(line, row.user),
        code=facts.code, options=facts.options, started_at=ended.started_s or row.running_at,
        ended_at=ended.ended_s, gpu_use=_use(line, row.run, ended.gpu_use), inputs=facts.used,
        tracked=lineage.tracked, runs=lineage.runs, links=lineage.links, reused=lineage.reused, files=files,
        environment=msgspec.structs.replace(facts.environment, unknown=[]), is_cluster_known=is_cluster_known,
    )  # fmt: skip


def _use(line: GatewayConnection, run: str, measured: GpuUse | None) -> GpuUse | None:
    """The use as its node measured it; while it runs, and for a while after, as this server has seen it."""
    if measured is not None and measured.utilization:
        return measured
    return line.use.of(run) or measured
