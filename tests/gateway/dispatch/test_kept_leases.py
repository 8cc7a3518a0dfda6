"""GPUs that a kernel keeps between its cells: who keeps them for how long, and that nobody keeps them for nothing."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_bed import BrokerBed, until

from jupyter_gpu_release.errors import ConflictError
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.rows import StoredSession
from jupyter_gpu_release.gateway.db.warm_leases import warm_spans
from jupyter_gpu_release.gateway.runs.machine import Cancel
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.runs.sessions import Session
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.states import LeaseState, RunState


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    made = BrokerBed(tmp_path, monkeypatch, a=2)
    made.settings["max_keep_s"] = 600.0
    return made


def _connect(service: GatewayService, session: str = "s") -> Session:
    found = service.sessions._sessions[session] = Session(session, "ann")
    stored = StoredSession(session, "ann", "live", time.time())
    service.ledger.write(partial(database.put_session, session=stored))
    return found


async def _ended(bed: BrokerBed, service: GatewayService, gpus: int = 1, **facts: Any) -> RunRecord:
    record = await bed.running(service, gpus, **facts)
    bed.end(service, record)
    await until(lambda: record.state is RunState.SUCCEEDED)
    return record


async def _kept(bed: BrokerBed, service: GatewayService, gpus: int = 1, **facts: Any) -> Lease:
    _connect(service)
    await _ended(bed, service, gpus, **facts)
    (lease,) = service.leases.warm()
    return lease


@pytest.mark.asyncio
async def test_more_than_the_gateway_allows_is_cut_and_the_cell_says_so(bed: BrokerBed) -> None:
    async with bed.life() as service:
        _connect(service)
        told = {}
        for keep_s, auto in ((60.0, False), (3600.0, False), (3600.0, True)):
            kept = (await _ended(bed, service, keep_s=keep_s, keep_auto=auto)).view.kept
            assert kept is not None
            told[keep_s, auto] = (kept.for_s, kept.capped, kept.auto)
    assert told == {
        (60.0, False): (60.0, False, False),
        (3600.0, False): (600.0, True, False),
        (3600.0, True): (600.0, False, True),
    }


@pytest.mark.asyncio
async def test_nothing_is_kept_for_a_kernel_that_has_ended_or_on_a_gpu_that_is_drained(bed: BrokerBed) -> None:
    async with bed.life() as service:
        assert (await _ended(bed, service, keep_s=60.0)).view.kept is None, "there is no such kernel"
        _connect(service)
        given_up = await bed.running(service, keep_s=60.0)
        service.lifecycle.hear(given_up, Cancel("cancelled by ann"))
        bed.end(service, given_up)
        await until(lambda: given_up.state.is_terminal)
        record = await bed.running(service, 2, keep_s=60.0)
        service.nodes.note_drained({"host-a:1": "drained by root"})
        bed.end(service, record)
        await until(lambda: record.state is RunState.SUCCEEDED)
        assert (given_up.view.kept, record.view.kept, service.leases.all()) == (None, None, [])
        assert not bed.ray.groups


@pytest.mark.asyncio
async def test_a_lease_with_a_gpu_that_was_drained_meanwhile_goes_to_nobody_as_it_is(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record, waits = await bed.running(service, 2), await bed.submitted(service, 2)
        lease = record.lease
        assert lease is not None
        service.nodes.note_drained({"host-a:1": "drained by root"})
        bed.end(service, record)
        await until(lambda: waits.lease is not None)
        assert lease.state is LeaseState.GONE
        assert waits.lease is not None
        assert waits.lease.name != lease.name


@pytest.mark.asyncio
async def test_more_time_is_never_less_and_never_more_than_the_gateway_allows(bed: BrokerBed) -> None:
    async with bed.life() as service:
        lease = await _kept(bed, service, keep_s=300.0)
        assert lease.kept is not None
        before = lease.kept.until_s
        assert service.warm.extend(lease, 10.0).until_s == before
        asked_s = time.time()
        longer = service.warm.extend(lease, 86_400.0).until_s
        assert asked_s + 600.0 <= longer <= time.time() + 600.0
        service.warm.most_s = 0.0
        with pytest.raises(ConflictError, match="keeps no GPUs between cells") as refused:
            service.warm.extend(lease, 10.0)
        assert "JUPYTER_GPU_MAX_KEEP" in refused.value.hint


@pytest.mark.asyncio
async def test_more_time_that_was_asked_for_outlives_the_gateway(bed: BrokerBed) -> None:
    async with bed.life() as service:
        lease = await _kept(bed, service, keep_s=60.0, keep_auto=True)
        longer = service.warm.extend(lease, 500.0)
        await bed.in_ledger(service)
    async with bed.life() as second:
        (again,) = second.leases.warm()
        assert again.kept == longer
        assert (longer.auto, again.ids_on("a")) == (False, lease.ids_on("a"))


@pytest.mark.asyncio
async def test_a_gateway_that_was_away_for_longer_keeps_nothing_and_counts_no_more_than_was_kept(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bed.life() as service:
        kept = (await _kept(bed, service, 2, keep_s=60.0)).kept
        assert kept is not None
        await bed.in_ledger(service)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600.0)
    async with bed.life() as second:
        assert (second.leases.all(), bed.ray.groups) == ([], {})
        await bed.in_ledger(second)
        with second.engine.connect() as link:
            (span,) = warm_spans(link, 0.0)
    assert (span.gpus, span.since, span.until) == (2, kept.since_s, kept.until_s)


@pytest.mark.asyncio
async def test_what_an_ended_kernel_kept_is_given_back_by_the_next_gateway(bed: BrokerBed) -> None:
    async with bed.life() as service:
        await _kept(bed, service, keep_s=600.0)
        ended = StoredSession("s", "ann", "ended", time.time())
        service.ledger.write(partial(database.put_session, session=ended))
        await bed.in_ledger(service)
    async with bed.life() as second:
        assert (second.leases.all(), bed.ray.groups) == ([], {})


@pytest.mark.asyncio
@pytest.mark.parametrize("gone", ["kernel", "node", "silent node"])
async def test_what_nobody_can_come_back_to_is_given_back(
    bed: BrokerBed, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with bed.life() as service:
        lease = await _kept(bed, service, keep_s=600.0)
        service.warm.tidy()
        assert lease.state is LeaseState.WARM
        (node,) = service.nodes.alive()
        if gone == "kernel":
            service.sessions._sessions.clear()
        elif gone == "node":
            node.alive = False
        else:
            node.is_lost = True
        with caplog.at_level("INFO"):
            service.warm.tidy()
            service.warm.tidy()  # once is enough
        assert lease.state is LeaseState.RELEASING
        assert caplog.text.count(f"its {gone.split()[-1]} is gone") == 1
        await until(lambda: not service.leases.all())


@pytest.mark.asyncio
async def test_only_the_leases_of_the_kernel_that_ended_are_given_back(bed: BrokerBed) -> None:
    async with bed.life() as service:
        first = await _kept(bed, service, keep_s=600.0)
        _connect(service, "other")
        await _ended(bed, service, session="other", keep_s=600.0)
        service.warm.end_of("s")
        await until(lambda: len(service.leases.all()) == 1)
        (left,) = service.leases.warm()
        assert left is not first
        assert left.kept is not None
        assert left.kept.session == "other"


@pytest.mark.asyncio
async def test_what_somebody_waits_for_is_not_kept_but_handed_over_as_it_is(bed: BrokerBed) -> None:
    """Of GPUs that are kept for as long as nobody waits; those that are kept for a time are."""
    async with bed.life() as service:
        _connect(service)
        for auto in (True, False):
            record = await bed.running(service, 2, keep_s=60.0, keep_auto=auto)
            waits = await bed.submitted(service, 2, session="another", user="bob")
            bed.end(service, record)
            await until(lambda record=record: record.state is RunState.SUCCEEDED)
            assert ((record.view.kept is None), (waits.lease is not None)) == (auto, auto)
            assert bed.ray.asked.count("placement_group") == (1 if auto else 2), (
                "no word to Ray for the one that waited"
            )
            if auto:
                await until(lambda waits=waits: str(waits.attempt_id) in bed.agents["a"].phases)
                bed.say(service, waits, "running")
                bed.end(service, waits)
                await until(lambda waits=waits: waits.state is RunState.SUCCEEDED)


@pytest.mark.asyncio
async def test_what_is_too_small_for_the_next_cell_of_its_user_is_given_back_for_it(bed: BrokerBed) -> None:
    async with bed.life() as service:
        lease = await _kept(bed, service, keep_s=600.0)
        larger = await bed.submitted(service, 2, session="another")
        await until(lambda: larger.lease is not None)
        assert (lease.state, service.leases.warm()) == (LeaseState.GONE, [])
