"""A gateway's broker without Ray and HTTP, on a store and a ledger with runs of any age."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.runs.manifests import manifest_of
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.admin import GcDocument
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.config import GatewayConfig, RetentionPolicy
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, RunRequest, RunView, ValueInfo
from jupyter_gpu_release.store.graph_file import digest_in, open_graph, write_graph
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, write_manifest

DAY_S = 86400.0
OLD = RetentionPolicy(older_than_s=30 * DAY_S)


class StoreBed:
    """``run_id(n)`` is the id of the n-th run. ``store``: that of another bed, as of two clusters on one store."""

    def __init__(self, folder: Path, store: Path | None = None) -> None:
        self.folder = folder
        self.store = store or folder / "store"
        self.config = GatewayConfig(str(folder), str(self.store), str(folder / "token"), str(folder), "")

    @asynccontextmanager
    async def service(self) -> AsyncIterator[GatewayService]:
        """A life of the gateway."""
        service = GatewayService(self.config)
        try:
            yield service
        finally:
            service.ledger.close()
            service.engine.dispose()

    async def collect(self, policy: RetentionPolicy = OLD, **more: Any) -> GcDocument:
        """One collection by a gateway of its own."""
        async with self.service() as service:
            return await service.result_collector.collect(policy, **more)

    def paths(self, number: int) -> RunPaths:
        """Paths of the n-th run."""
        return RunPaths.of(self.store, run_id(number))

    def add(self, number: int, *buffers: bytes, age_days: float = 50, state: str = "succeeded", **facts: Any) -> str:
        """A run with these values (each buffer of 1 MiB and more is a blob), made so long ago."""
        run, at_s = run_id(number), time.time() - age_days * DAY_S
        paths = create_run_folder(self.store, run)
        digest = write_graph(paths.values, b"stream", buffers, durable=False)
        outcome = Outcome("ok", values=Graph(file="values.graph", digest=digest), results=[ValueInfo("x", "bytes", 1)])
        facts = {"user": "ann", "session": "old session", "notebook": "a.ipynb", "submitted_at": at_s} | facts
        view = RunView(run, state=state, seq=1, finished_at=at_s if state == "succeeded" else None, **facts)
        engine = database.open_ledger(self.folder / "ledger.sqlite")
        with engine.begin() as connection:
            queued = msgspec.structs.replace(view, state="queued")
            request = RunRequest(run, view.session, ResourceAsk(), b"", code="x = 1")
            write_manifest(paths, manifest_of(view, outcome, request), durable=False)
            database.insert_run(connection, queued, number, request)
            database.update_run(connection, view, outcome)
        engine.dispose()
        return run

    def blobs(self) -> set[str]:
        """Digests of the blobs that are there."""
        return {path.name for path in self.store.glob("blobs/??/*")}

    def age_blobs(self, days: float = 50) -> None:
        """As if they had not been touched for so long."""
        at_s = time.time() - days * DAY_S
        for path in self.store.glob("blobs/**/*"):
            os.utime(path, (at_s, at_s))


def run_id(number: int) -> str:
    """The id of the n-th run."""
    return f"20260101-000000-{number:08x}"


def blob(letter: str) -> bytes:
    """A buffer that becomes a blob."""
    return letter.encode() * (1 << 20)


def collect(bed: StoreBed, policy: RetentionPolicy = OLD, **more: object) -> GcDocument:
    return asyncio.run(bed.collect(policy, **more))


def gone(document: GcDocument) -> list[str]:
    return [removal.run for removal in document.removals]


def is_whole(bed: StoreBed, number: int) -> bool:
    return bed.paths(number).values.exists() and open_values(bed, number) is not None


def open_values(bed: StoreBed, number: int) -> list[memoryview]:
    path = bed.paths(number).values
    return open_graph(path, digest_in(path), verify=True).buffers
