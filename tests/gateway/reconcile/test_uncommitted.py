"""A gateway dies before its ledger has caught up, more than once: what nodes and leases say stays till then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bed import ANN, BrokerBed, PretendedAgent, until

from jupyter_gpu_release.gateway.api.run_follower import Subscription
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.writer import LedgerWriter
from jupyter_gpu_release.gateway.reconcile.stray_leases import Reconciliation
from jupyter_gpu_release.gateway.runs.machine import Lost
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.session import Update
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.protocol.wire import decode


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=4)


class _Disk:
    """A ledger that commits nothing for a while."""

    def __init__(self) -> None:
        self._may_commit = threading.Event()

    def hang(self, service: GatewayService) -> None:
        service.ledger.write(lambda _: self._hang())

    def go_on(self) -> None:
        self._may_commit.set()

    def _hang(self) -> None:
        assert self._may_commit.wait(60)


@pytest.fixture
def disk() -> Iterator[_Disk]:
    made = _Disk()
    yield made
    made.go_on()


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes of runs that may wait are lost with their gateway, and those of leases are not."""
    later = LedgerWriter.write_later

    def write(ledger: LedgerWriter, key: str, work: Any) -> None:
        if key.startswith("jgr-"):
            later(ledger, key, work)

    monkeypatch.setattr(LedgerWriter, "write_later", write)


def _in_ledger(service: GatewayService, run: str) -> tuple[str, int]:
    with service.engine.connect() as connection:
        stored = database.find_run(connection, run)
    assert stored is not None
    return stored.view.state, stored.view.attempt


async def _hand_over(bed: BrokerBed, service: GatewayService, record: RunRecord) -> None:
    """Its lease is another run's at once."""
    following = await bed.submitted(service, 4)
    for phase in ("ended", "released"):
        bed.say(service, record, phase)
    await until(lambda: following.accepted)
    assert following.lease is not None
    assert following.lease.name.endswith(record.run)


async def _is_lost(bed: BrokerBed, run: str) -> None:
    """With its agent, and with the gateway that knew of its lease."""
    bed.next_agent("a")
    async with bed.life() as service:
        await until(lambda: _in_ledger(service, run)[0] == "lost")
        assert run not in bed.agents["a"].orders


@pytest.mark.asyncio
async def test_a_run_whose_lease_is_anothers_by_now_is_not_begun_again(hurry: None, bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await bed.running(service, 4)
        await _hand_over(bed, service, record)
        assert _in_ledger(service, record.run) == ("starting", 0)
    await _is_lost(bed, record.run)


@pytest.mark.asyncio
async def test_what_a_gateway_has_found_on_a_node_is_committed_before_its_lease_is_anothers(
    hurry: None, bed: BrokerBed
) -> None:
    async with bed.life() as service:
        write = service.ledger.write

        def lose_runs(work: Any, *, replaces: str = "", again: Any = None) -> asyncio.Future[None]:
            is_of_run = replaces and service.runs.get(replaces) is not None
            return asyncio.Future() if is_of_run else write(work, replaces=replaces, again=again)

        service.ledger.write = lose_runs  # type: ignore[method-assign]
        record = await bed.running(service, 4)
        await until(lambda: record.view.gpu_ids)
        assert _in_ledger(service, record.run) == ("queued", 0)
    async with bed.life() as service:
        found = service.runs.get(record.run)
        assert found is not None
        await _hand_over(bed, service, found)
    await _is_lost(bed, record.run)


@pytest.mark.asyncio
async def test_a_node_forgets_an_attempt_once_the_ledger_has_its_end(
    bed: BrokerBed, disk: _Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attempt follows it."""
    seen: list[tuple[str, int]] = []
    async with bed.life() as service:
        record, forget = await bed.running(service, 4, retries=1), PretendedAgent.do_forget_runs

        async def look(agent: PretendedAgent, attempt_ids: bytes) -> None:
            seen.append(_in_ledger(service, record.run))
            await forget(agent, attempt_ids)

        monkeypatch.setattr(PretendedAgent, "do_forget_runs", look)
        await bed.in_ledger(service)
        disk.hang(service)
        service.lifecycle.hear(record, Lost(record.attempt_id, "as if its process had been killed"))
        await until(lambda: record.attempt == 1)
        for _ in range(50):
            await asyncio.sleep(0)
        disk.go_on()
        await until(lambda: seen)
    assert seen[0][1] == 1


@pytest.mark.asyncio
async def test_a_look_at_a_node_has_it_forget_nothing_that_is_not_committed(bed: BrokerBed, disk: _Disk) -> None:
    async with bed.life() as service:
        record, known = await bed.running(service, 4), bed.agents["a"].phases
        reconciliation = Reconciliation(service)
        disk.hang(service)
        bed.end(service, record)
        await until(lambda: record.state is RunState.SUCCEEDED)
        for _ in range(5):
            await reconciliation.compare_once()
        assert known == {record.run: "final"}
        disk.go_on()
        await until(lambda: not known)


@pytest.mark.asyncio
async def test_the_end_of_a_run_that_waits_is_told_once_the_ledger_has_it(bed: BrokerBed, disk: _Disk) -> None:
    """No node could tell it again, and the next gateway would start the run."""
    told: list[str] = []

    async def send(message: bytes) -> None:
        told.append(decode(message, Update).view.state)

    async with bed.life() as service:
        await bed.running(service, 4)
        record, changed = await bed.submitted(service, 4), asyncio.Event()
        follower = Subscription(service, ANN, record, 0)
        await follower.catch_up(send)
        disk.hang(service)
        cancelling = asyncio.ensure_future(service.cancel(ANN, record.run, kill=False))
        await until(lambda: record.state.is_terminal)
        await follower.catch_up(send)
        assert (told, cancelling.done()) == (["queued"], False)
        record.watchers.add(changed.set)
        disk.go_on()
        async with asyncio.timeout(60):
            await asyncio.gather(cancelling, changed.wait())
        assert _in_ledger(service, record.run) == ("cancelled", 0)
        await follower.catch_up(send)
    assert told == ["queued", "cancelled"]


@pytest.mark.asyncio
async def test_a_run_whose_results_no_node_keeps_ends(bed: BrokerBed) -> None:
    """The node told so, and the gateway that heard it died before it had committed that."""
    async with bed.life() as service:
        record, reconciliation = await bed.running(service, 4), Reconciliation(service)
        for phase in ("ended", "released"):
            bed.say(service, record, phase)
        await until(lambda: record.state is RunState.PERSISTING)
        bed.agents["a"].phases.clear()
        for _ in range(2 * 5):
            await reconciliation.compare_once()
        await until(lambda: record.state.is_terminal)
