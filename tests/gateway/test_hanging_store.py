"""A gateway whose store stops answering: nobody is held up by it, and things go on when it answers again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from feeds import Reading
from hanging_fs import HangingStore, hanging_store
from ray_bed import GPUS, GatewayBed, RayBed, request

from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.rest import StatusDocument

Until = Callable[[Callable[[], object], str], None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HangingStore]:
    with hanging_store(tmp_path) as made:
        yield made


@pytest.mark.thorough
def test_runs_wait_without_gpus_and_can_be_cancelled(
    ray_bed: RayBed, store: HangingStore, tmp_path: Path, until: Until
) -> None:
    gateway = GatewayBed(ray_bed, tmp_path, store=store.path)
    assert gateway.deploy().ok
    session = GatewaySession(gateway.target, "hanging")
    try:
        session.connect(60)
        assert Reading(session.submit(request("print 1", "hanging"))).end().state == "succeeded"
        store.hang()
        waiting = [Reading(session.submit(request("print 1", "hanging"))) for _ in range(12)]
        with gateway.rest() as client:
            until(lambda: _all_wait(client.status()), "all to wait, and nobody to hold a GPU")
            assert client.health().ready
            given_up = waiting.pop()
            client.cancel(given_up.feed.run)
            assert given_up.end().state == "cancelled"
        store.answer()
        assert [reading.end().state for reading in waiting] == ["succeeded"] * 11
        until(gateway.is_clean, "all to be given back")
    finally:
        store.answer()
        session.close()
        gateway.end()


def _all_wait(status: StatusDocument) -> bool:
    """Tell if all twelve have come and wait, those that were tried for the store."""
    is_why = any("the store has not answered" in entry.reason for entry in status.queue)
    return is_why and status.gpus.free == GPUS and [run.state for run in status.runs] == ["queued"] * 12
