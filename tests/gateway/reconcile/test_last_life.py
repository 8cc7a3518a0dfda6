"""Runs under way when their cluster ended: they ended with it, whenever the next one starts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from broker_bed import BrokerBed, until

from jupyter_gpu_release.gateway.cluster.lease import Placement
from jupyter_gpu_release.gateway.db.rows import StoredLease, WarmLeaseRow
from jupyter_gpu_release.gateway.db.usage import SIGN_S, WEEK_S, last_sign_of_life, read_leases, usage_between
from jupyter_gpu_release.gateway.db.warm_leases import put_warm_lease, warm_spans
from jupyter_gpu_release.gateway.runs.machine import Cancel
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.rest import held_s, queued_s
from jupyter_gpu_release.protocol.wire import encode

_WEEKEND_S = 60 * 3600.0


class _Clock:
    """The machine's clock, moved on by the time for which nothing ran."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.moved_s = 0.0
        really = time.time
        patch.setattr(time, "time", lambda: really() + self.moved_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    return _Clock(monkeypatch)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=2)


async def _seen(bed: BrokerBed, service: GatewayService) -> None:
    """The cluster's last sign of life, with all runs in the ledger as they are."""
    await bed.in_ledger(service)
    before = time.time()
    service.usage.note_capacity(2)

    def told() -> bool:
        with service.engine.connect() as connection:
            return (last_sign_of_life(connection) or 0.0) >= before

    await until(told)


def _end_cluster(bed: BrokerBed) -> None:
    """As `stop` does, or a machine that loses its power: the next one is another."""
    bed.ray.groups.clear()
    bed.next_agent("a")
    bed.settings["cluster"] = "another"


def _held_by_ann(service: GatewayService) -> float:
    now_s = time.time()
    with service.engine.connect() as connection:
        leases, ends = read_leases(connection, now_s - WEEK_S)
    return usage_between([now_s - WEEK_S, now_s], leases, ends)[0]["ann"].held_s


@pytest.mark.asyncio
async def test_a_weekend_without_a_cluster_is_charged_to_nobody(bed: BrokerBed, clock: _Clock) -> None:
    async with bed.life() as service:
        running = await bed.running(service, detach=True)
        again = await bed.running(service, detach=True, restartable=True)
        waiting = await bed.submitted(service)
        await _seen(bed, service)
        stopped_at = time.time()
    _end_cluster(bed)
    clock.moved_s = _WEEKEND_S
    async with bed.life() as service:
        lost, queued = (service.runs.find(each.run) for each in (running, waiting))
        assert lost is not None
        assert queued is not None
        await until(lambda: lost.state.is_terminal and queued.state.is_terminal)
        assert lost.view.state == queued.view.state == "lost"
        assert "started anew" in queued.view.reason
        assert lost.view.gone_at == lost.view.finished_at
        assert lost.view.finished_at <= stopped_at
        assert held_s(lost.view, time.time()) <= stopped_at - running.view.granted_at
        assert queued_s(queued.view, time.time()) <= stopped_at - waiting.view.submitted_at
        goes_on = service.runs.find(again.run)
        assert goes_on is not None
        await until(lambda: len(goes_on.view.attempts) == 1)
        assert goes_on.view.attempts[0].gone_at <= stopped_at
        await bed.in_ledger(service)
        service.lifecycle.hear(goes_on, Cancel("over"))
        await until(lambda: goes_on.state.is_terminal or goes_on.lease is not None)
        assert _held_by_ann(service) < _WEEKEND_S / 2


@pytest.mark.asyncio
async def test_what_began_after_the_last_sign_of_life_ended_at_once(bed: BrokerBed, clock: _Clock) -> None:
    async with bed.life() as service:
        await _seen(bed, service)
        clock.moved_s = SIGN_S / 2
        record = await bed.running(service)
        await bed.in_ledger(service)
    _end_cluster(bed)
    clock.moved_s = _WEEKEND_S
    async with bed.life() as service:
        lost = service.runs.find(record.run)
        assert lost is not None
        await until(lambda: lost.state.is_terminal)
        assert lost.view.gone_at == record.view.running_at


@pytest.mark.asyncio
async def test_gpus_that_ray_holds_on_are_held_while_the_gateway_alone_is_away(bed: BrokerBed, clock: _Clock) -> None:
    async with bed.life() as service:
        record = await bed.running(service)
        await _seen(bed, service)
    bed.next_agent("a")  # killed with it
    clock.moved_s = _WEEKEND_S
    async with bed.life() as service:
        lost = service.runs.find(record.run)
        assert lost is not None
        await until(lambda: lost.state.is_terminal)
        assert held_s(lost.view, time.time()) >= _WEEKEND_S


@pytest.mark.asyncio
async def test_ray_itself_was_started_anew_below_the_same_gateway(bed: BrokerBed, clock: _Clock) -> None:
    async with bed.life() as service:
        record = await bed.running(service)
        await _seen(bed, service)
        stopped_at = time.time()
    bed.ray.groups.clear()
    bed.next_agent("a")
    clock.moved_s = _WEEKEND_S
    async with bed.life() as service:
        lost = service.runs.find(record.run)
        assert lost is not None
        await until(lambda: lost.state.is_terminal)
        assert lost.view.finished_at <= stopped_at


@pytest.mark.asyncio
async def test_a_warm_lease_ends_with_its_cluster(bed: BrokerBed, clock: _Clock) -> None:
    async with bed.life() as service:
        began_s = time.time()
        kept = WarmLeaseRow("ann", "s", began_s, began_s + 3600.0)
        lease = StoredLease("lease", "20261127-020000-00000001", encode(Placement([("a", 1, 1)])))
        with service.engine.begin() as connection:
            put_warm_lease(connection, lease, kept)
        await _seen(bed, service)
        stopped_at = time.time()
    _end_cluster(bed)
    clock.moved_s = _WEEKEND_S

    def ended_at() -> float | None:
        with service.engine.connect() as connection:
            spans = warm_spans(connection, began_s - 1.0)  # for a moment it is neither kept nor counted
        return spans[0].until if spans else None

    async with bed.life() as service:
        await until(lambda: ended_at() is not None)
        assert ended_at() <= stopped_at
