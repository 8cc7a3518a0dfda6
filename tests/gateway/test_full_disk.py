"""The gateway's own disk is full: nothing is taken in meanwhile, and no run that ends is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from disks import tmpfs
from feeds import Reading
from ray_bed import GatewayBed, RayBed, request
from sqlalchemy.engine import Engine

from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.writer import LedgerError, LedgerWriter
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, RunRequest, RunView

RUN = "20260101-000000-00000001"


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """No byte is left on the filesystem of ``folder``."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    yield
    filler.unlink()


def test_the_end_of_a_run_is_committed_when_there_is_room_again(tmp_path: Path) -> None:
    """A submission is refused at once, as it may be sent again; what is older never replaces what is newer."""

    async def go(engine: Engine) -> None:
        ledger = LedgerWriter(engine)
        view, asked = RunView(RUN, "ann", "queued", seq=1), RunRequest(RUN, "s", ResourceAsk(), b"", code="x" * 100_000)
        await ledger.write(partial(database.insert_run, view=view, ordinal=1, request=asked))
        with filled(tmp_path):
            large = Outcome("ok", values=Graph(stream=b"v" * 100_000))
            views = [RunView(RUN, "ann", "succeeded", seq=9), RunView(RUN, "ann", "running", seq=5)]
            waiting = []
            for newest in views:
                write = partial(database.update_run, view=newest, outcome=large)
                waiting.append(ledger.write(write, again=write))
            other = RunView("20260101-000000-00000002", "ann", "queued", seq=1)
            with pytest.raises(LedgerError, match="full"):
                await ledger.write(partial(database.insert_run, view=other, ordinal=2, request=asked))
            assert "full" in ledger.trouble
            assert not any(done.done() for done in waiting)
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        assert ledger.trouble == ""
        ledger.close()

    with tmpfs(tmp_path, "1m"):
        engine = database.open_ledger(tmp_path / "ledger.sqlite")
        asyncio.run(go(engine))
        with engine.connect() as connection:
            stored = database.find_run(connection, RUN)
            assert (stored.view.state, stored.view.seq) == ("succeeded", 9)
        engine.dispose()


@pytest.mark.slow("a disk that fills, and a restart")
def test_a_gateway_with_a_full_disk_refuses_in_words_and_loses_no_end(
    ray_bed: RayBed, tmp_path: Path, until: Callable[..., None]
) -> None:
    with tmpfs(tmp_path, "8m"):
        bed = GatewayBed(ray_bed, tmp_path)
        assert bed.deploy().ok
        session = GatewaySession(bed.target, "session")
        try:
            session.connect(60.0)
            asked = request("print 1\nhold\nvalues 200000", "session")
            reading = Reading(session.submit(asked))
            reading.state("running")
            with bed.rest() as client:
                with filled(tmp_path):
                    refused = Reading(session.submit(request("print 1" + " " * 500_000, "session"))).refused()
                    assert "the ledger cannot record this" in refused.message
                    (tmp_path / "filler").write_bytes(b"")
                    bed.let_go(asked.run)  # a file on this disk
                    with filled(tmp_path / "home"):
                        assert reading.end().state == "succeeded"
                until(lambda: client.health().ready, "ready, as there is room again")
            until(lambda: _state_in(bed, asked.run) == "succeeded", "the end in the ledger")
        finally:
            session.close()
            bed.end()


def _state_in(bed: GatewayBed, run: str) -> str:
    engine = database.open_ledger(Path(bed.config.home) / "ledger.sqlite")
    try:
        with engine.connect() as connection:
            stored = database.find_run(connection, run)
            return stored.view.state if stored is not None else ""
    finally:
        engine.dispose()
