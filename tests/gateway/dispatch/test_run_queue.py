"""The queue: a run that Ray did not grant keeps its place, leases go on as they are, no change is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from broker_bed import until
from queue_bed import QueueBed

from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.dispatch import inventory
from jupyter_gpu_release.protocol.node import NodeInfo
from jupyter_gpu_release.protocol.states import LeaseState
from jupyter_gpu_release.scheduling.decisions import Slot
from jupyter_gpu_release.scheduling.queues.queues_file import QueuesFile
from jupyter_gpu_release.scheduling.queues.tree import Policy
from jupyter_gpu_release.scheduling.workload import GPU


@pytest.mark.asyncio
async def test_nobody_overtakes_a_run_that_is_put_back() -> None:
    bed = QueueBed(external=5)
    bed.queue.open()
    bed.wait("second", "third")
    first = bed.run("first", ordinal=-1)
    bed.queue.put_back(first)
    bed.queue.serve()
    assert not bed.granted
    bed.queue.resume(first)
    await until(lambda: bed.granted == ["first"])

    bed = QueueBed(external=2)
    bed.queue.open()
    bed.wait("second", "third")
    bed.queue.put_back(bed.run("first", ordinal=-1))
    bed.queue.serve()
    assert bed.granted == ["second"]  # what is left beyond the first one's is nobody's loss


@pytest.mark.asyncio
async def test_a_lease_goes_to_the_next_run_as_it_is_or_is_given_back() -> None:
    bed = QueueBed()
    ends = bed.lease("ends", (Slot("n", 8),))
    bed.queue.open()
    assert not await bed.queue.offer(ends)  # nobody waits
    bed.wait("small", gpus=3)
    assert not await bed.queue.offer(ends)  # it has another size
    [next_one] = bed.wait("next", gpus=8)
    bed.queue.remove(bed.records["small"])
    bed.queue.put_back(next_one)
    assert not await bed.queue.offer(ends)  # it is not to be started just now
    bed.queue.remove(next_one)
    bed.wait("one", "two", gpus=8)
    assert await bed.queue.offer(ends)
    assert bed.handed == [("ends", "one")]
    assert bed.granted == []


@pytest.mark.asyncio
async def test_a_run_gets_what_is_offered_though_its_wait_is_over_just_then() -> None:
    bed = QueueBed()
    leases = [bed.lease(name, (Slot("n", 4),)) for name in ("a", "b")]
    bed.queue.open()
    for name in ("late", "later"):
        bed.queue.add(bed.run(name, gpus=4, ordinal=-60, wait_s=1.0))
    assert await asyncio.gather(*map(bed.queue.offer, leases)) == [True, True]
    assert (len(bed.handed), bed.expired) == (2, [])


@pytest.mark.asyncio
async def test_leases_that_are_offered_together_go_to_as_many_runs() -> None:
    bed = QueueBed()
    leases = [bed.lease(name, (Slot("n", 4),)) for name in ("a", "b")]
    bed.queue.open()
    bed.wait("one", "two", "three", gpus=4)
    assert await asyncio.gather(*map(bed.queue.offer, leases)) == [True, True]
    assert sorted(run for _, run in bed.handed) == ["one", "two"]


@pytest.mark.faults_of_ours
@pytest.mark.asyncio
async def test_a_decision_that_fails_leaves_no_lease_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = QueueBed()
    lease = bed.lease("ends", (Slot("n", 8),))
    bed.queue.open()
    bed.wait("one", gpus=8)
    with monkeypatch.context() as patch:
        patch.setattr(bed.queue.inventory, "in_step", lambda *_: 1 / 0)
        assert not await bed.queue.offer(lease)
    bed.leases.drop_lease(lease)
    await until(lambda: bed.granted == ["one"])  # it is decided again, with no word from anybody


@pytest.mark.faults_of_ours
@pytest.mark.asyncio
async def test_a_run_that_the_scheduler_fails_at_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bed, to_run = QueueBed(external=8), inventory.to_run

    def to_run_or_fail(run: str, *arguments: Any, **facts: Any) -> Any:
        made = to_run(run, *arguments, **facts)
        return replace(made, ranks=None) if run == "poison" else made

    monkeypatch.setattr(inventory, "to_run", to_run_or_fail)
    bed.queue.open()
    bed.wait("one", "poison", "two")
    bed.decide()
    assert bed.failed == ["poison"]
    assert "poison" not in bed.queue
    state = bed.queue.inventory.in_step().state
    assert sorted(state.jobs) == ["one", "two"]
    assert state.accounts["default"].demand == 6 * GPU
    assert sum(len(kind.jobs) for kind in state.kinds.values()) == 2
    bed.leases.external = {}
    bed.decide()
    assert bed.granted == ["one", "two"]


@pytest.mark.faults_of_ours
@pytest.mark.asyncio
async def test_what_fails_while_one_decision_is_carried_out_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = QueueBed()
    grant = bed._on_grant

    def grant_or_fail(record: Any, what: Any) -> None:
        if record.run == "poison":
            raise OSError("the disk")
        grant(record, what)

    monkeypatch.setattr(bed.queue, "_on_grant", grant_or_fail)
    bed.queue.open()
    bed.wait("poison", "one", "two")
    bed.decide()
    assert bed.failed == ["poison"]
    await until(lambda: bed.granted == ["one", "two"])


@pytest.mark.faults_of_ours
@pytest.mark.asyncio
async def test_a_lease_that_the_scheduler_fails_at_is_nobody_elses_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed = QueueBed()
    holder = bed.queue.inventory._holder

    def holder_or_fail(lease: Lease, record: Any) -> Any:
        if lease.run == "poison":
            raise KeyError(lease.run)
        return holder(lease, record)

    monkeypatch.setattr(bed.queue.inventory, "_holder", holder_or_fail)
    bed.queue.open()
    lease = bed.lease("poison", (Slot("n", 6),))
    bed.wait("two", gpus=2)
    bed.wait("one", gpus=3)
    bed.decide()
    assert bed.granted == ["two"]
    bed.leases.drop_lease(lease)
    bed.decide()
    assert bed.granted == ["two", "one"]


@pytest.mark.asyncio
async def test_whatever_changes_the_next_decision_knows() -> None:
    """Nobody tells of GPUs of others, of nodes that fall silent or come, of leases: it is looked at."""
    bed = QueueBed(external=6)
    bed.queue.open()
    bed.wait("one", gpus=3)

    def granted() -> list[str]:
        bed.decide()
        return bed.granted

    assert granted() == []
    bed.leases.external = {}
    bed.node.reachable = False
    assert granted() == []
    bed.node.reachable, bed.node.is_lost = True, True
    assert granted() == []
    bed.node.is_lost = False
    lease = bed.lease("over", (Slot("n", 8),))
    assert granted() == []
    lease.state = LeaseState.RELEASING
    assert granted() == []
    bed.leases.drop_lease(lease)
    assert granted() == ["one"]
    bed.wait("two", gpus=8)
    assert granted() == ["one"]
    bed.nodes.refresh([{"NodeID": "m", "NodeManagerHostname": "m", "Alive": True, "Resources": {"GPU": 8, "CPU": 8}}])
    bed.nodes.alive()[1].info = NodeInfo("m", "m", "1", "3", "")
    assert granted() == ["one", "two"]


@pytest.mark.asyncio
async def test_what_happens_close_together_is_decided_together(monkeypatch: pytest.MonkeyPatch) -> None:
    bed, passes = QueueBed(external=8), [0]
    in_step = bed.queue.inventory.in_step

    def counted(offered: Iterable[str] = ()) -> Any:
        passes[0] += 1
        return in_step(tuple(offered))

    monkeypatch.setattr(bed.queue.inventory, "in_step", counted)
    bed.queue.open()
    bed.wait("waits")
    for _ in range(50):
        bed.queue.serve()
    before = passes[0]
    assert 1 <= before < 25, "the first is decided at once, the others wait a moment"
    await until(lambda: passes[0] > before)


@pytest.mark.asyncio
async def test_a_change_of_places_in_the_pause_after_a_long_decision_is_decided_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed, passes = QueueBed(external=8), [0]
    in_step = bed.queue.inventory.in_step

    def slow(offered: Iterable[str] = ()) -> Any:
        passes[0] += 1
        time.sleep(0.04)  # as long as a decision about thousands takes
        return in_step(tuple(offered))

    monkeypatch.setattr(bed.queue.inventory, "in_step", slow)
    bed.queue.open()
    bed.wait("waits")
    bed.queue.serve()
    before = passes[0]
    bed.queue.serve_soon()
    await until(lambda: passes[0] > before)
    before = passes[0]
    bed.queue.serve()
    await until(lambda: passes[0] > before)


@pytest.mark.asyncio
async def test_queues_that_make_no_scheduler_leave_the_ones_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that no scheduler can be made of must not hold by half: the next one is taken over as it is."""
    bed = QueueBed(external=8)
    bed.queue.open()
    bed.wait("one")
    bed.decide()
    made = bed.queue.inventory.scheduler
    bed.rules.file = QueuesFile(policy=Policy(usage_half_life_s=0.0))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            bed.queue.inventory.in_step()
        assert bed.queue.inventory.scheduler is made
    bed.rules.file = QueuesFile()
    bed.leases.external = {}
    bed.decide()
    assert bed.granted == ["one"]
