"""The queue: a run that Ray did not grant keeps its place, leases go on as they are, no change is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from broker_bed import until
from msgspec import structs
from queue_bed import QueueBed

from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.dispatch import inventory, run_queue
from jupyter_gpu_release.gateway.runs.record import Preempting, Running
from jupyter_gpu_release.protocol.node import NodeInfo
from jupyter_gpu_release.protocol.runs import Preemption, RunView
from jupyter_gpu_release.protocol.states import LeaseState
from jupyter_gpu_release.scheduling.decisions import Slot
from jupyter_gpu_release.scheduling.queues.queues_file import QueuesFile
from jupyter_gpu_release.scheduling.queues.tree import Policy
from jupyter_gpu_release.scheduling.scheduler import Scheduler
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
async def test_a_run_that_was_asked_to_step_aside_is_put_back_after_others_however_soon_after_a_decision() -> None:
    bed = QueueBed()
    lease = bed.lease("asked", (Slot("n", 8),))
    bed.queue.open()
    bed.wait("waits", gpus=5)
    bed.queue._serve_now()  # the next decision comes after a pause
    bed.queue._rests_until_s += 60.0
    bed.leases.drop_lease(lease)
    asked = bed.run("asked", ordinal=-60, gpus=8)
    bed.queue.put_back(asked, after_others=True)
    bed.queue.resume(asked)
    bed.decide()
    assert bed.granted == ["waits"]


@pytest.mark.asyncio
@pytest.mark.parametrize("is_asked", [True, False])
async def test_a_run_that_stepped_aside_while_the_gateway_was_away_is_behind_who_waits(*, is_asked: bool) -> None:
    bed = QueueBed()
    asked = bed.run("asked", ordinal=-60, gpus=8)
    bed.queue.put_back(asked, after_others=is_asked)
    bed.queue.resume(asked)
    (waits,) = bed.wait("waits", gpus=8)
    assert bed.queue.waiting() == [asked, waits]
    bed.queue.open()
    assert bed.granted == (["waits"] if is_asked else ["asked"])
    assert bed.queue.waiting() == ([asked] if is_asked else [waits])
    bed.leases.drop_lease(bed.leases.of_run(bed.granted[0]))
    bed.decide()
    assert sorted(bed.granted) == ["asked", "waits"]


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
async def test_a_run_that_no_decision_can_be_made_with_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bed, decide = QueueBed(external=8), Scheduler.decide

    def decide_or_fail(scheduler: Scheduler, *arguments: Any, **facts: Any) -> Any:
        if "poison" in scheduler.state.jobs:
            raise ZeroDivisionError
        return decide(scheduler, *arguments, **facts)

    monkeypatch.setattr(Scheduler, "decide", decide_or_fail)
    bed.queue.open()
    bed.wait("one", "two", "poison", "three", gpus=2)
    bed.decide()
    assert "poison" in bed.queue, "it is not known yet which one it is"
    await until(lambda: bed.failed == ["poison"])
    bed.leases.external = {}
    bed.decide()
    assert bed.granted == ["one", "two", "three"]


@pytest.mark.asyncio
async def test_gpus_that_ray_never_reports_free_keep_no_others_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang waits for the whole node: it counts on them for some time, and then lets shorter runs go on."""
    bed = QueueBed({"n": 8})
    lease = bed.lease("over", (Slot("n", 1),))
    lease.state = LeaseState.RELEASING
    bed.queue.open()
    bed.wait("gang", gpus=8)
    bed.wait("small", gpus=2)
    bed.decide()
    assert bed.granted == []
    monkeypatch.setattr(inventory, "FREE_S", 0.0)
    bed.decide()
    assert bed.granted == ["small"]
    bed.leases.drop_lease(lease)
    small = bed.leases.of_run("small")
    assert small is not None
    bed.leases.drop_lease(small)
    bed.decide()
    assert bed.granted == ["small", "gang"]


@pytest.mark.asyncio
async def test_an_estimate_while_a_lease_is_offered_ends_its_run_once() -> None:
    bed = QueueBed()
    bed.queue.open()
    bed.wait("one", "two", gpus=8)
    bed.decide()
    found, lease = bed.queue.inventory, bed.leases.of_run("one")
    found.in_step()
    assert found.run_times.has_started("one")
    assert lease is not None
    for _ in range(3):
        found.in_step({lease.name: None})
        found.snapshot()
    bed.leases.drop_lease(lease)
    bed.decide()
    assert bed.granted == ["one", "two"]
    assert len(found.run_times._judged) == 1
    assert not found.run_times.knows("one")


@pytest.mark.asyncio
async def test_a_run_that_came_and_went_between_two_decisions_is_learned_from() -> None:
    bed = QueueBed()
    bed.queue.open()
    [record] = bed.wait("one", gpus=8)
    bed.decide()
    lease, now_s = bed.leases.of_run("one"), time.time()
    assert lease is not None
    record.view = structs.replace(record.view, granted_at=now_s - 5.0, gone_at=now_s)
    bed.leases.drop_lease(lease)
    bed.wait("two", gpus=8)
    run_times = bed.queue.inventory.in_step() and bed.queue.inventory.run_times
    job = bed.queue.inventory.scheduler.state.jobs["two"]
    assert run_times.length(job.run, now_s).expected_s == pytest.approx(5.0, abs=1.0)


@pytest.mark.asyncio
async def test_who_was_overtaken_is_known_after_a_restart() -> None:
    bed = QueueBed()
    older, newer = bed.run("older"), bed.run("newer", ordinal=60)
    at_s = older.view.submitted_at
    past = RunView(
        "between", "bob", "succeeded", gpus=4, submitted_at=at_s + 30.0, granted_at=at_s + 30.0, gone_at=at_s + 50.0
    )
    bed.queue.inventory.remember([past], [newer, older])
    run_times = bed.queue.inventory.run_times
    run_times.resize(8)
    assert run_times.overtaken_s("older", at_s + 100.0) == pytest.approx(20.0 * 4 / 8)
    assert run_times.overtaken_s("newer", at_s + 100.0) == 0.0
    bed.queue.add(older)
    bed.queue.open()
    assert run_times.knows("older")
    assert not run_times.knows("newer"), "it neither waits nor runs"


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


@pytest.mark.asyncio
async def test_who_steps_aside_is_asked_once_and_its_place_is_kept_for_the_one_it_was_asked_for() -> None:
    bed = QueueBed()
    low = bed.run("low", gpus=8)
    lease = bed.lease("low", (Slot("n", 8),))
    lease.state = LeaseState.BUSY
    low.view = structs.replace(low.view, restartable=True, state="running", priority_value=25, granted_at=1.0)
    low.snapshot = replace(low.snapshot, stage=Running(lease))
    bed.queue.open()
    urgent = bed.run("urgent", gpus=8)
    urgent.view = structs.replace(urgent.view, priority_value=75)
    bed.queue.add(urgent)
    bed.decide()
    assert bed.asked == [("low", "urgent")]
    low.snapshot = replace(low.snapshot, stage=Preempting(lease, Preemption("preempt", "", 0.0, 0.0, "urgent", "ann")))
    older = bed.run("older", gpus=8, ordinal=-60)
    older.view = structs.replace(older.view, priority_value=75)
    bed.queue.add(older)
    bed.decide()
    assert await bed.queue.offer(lease)
    assert (bed.asked, bed.handed, bed.granted) == ([("low", "urgent")], [("low", "urgent")], [])


@pytest.mark.asyncio
async def test_nothing_is_kept_for_a_run_when_one_stays_that_was_to_step_aside_for_it() -> None:
    bed = QueueBed()
    bed.queue.open()
    (waits,) = bed.wait("waits", gpus=8)
    bed.queue.inventory.scheduler.promise("waits", ((0, "n"),))
    older = bed.run("older", gpus=8, ordinal=-60)
    bed.queue.put_back(waits)
    bed.queue.add(older)
    bed.decide()
    assert bed.granted == []
    bed.queue.take_back("waits")
    bed.decide()
    assert bed.granted == ["older"]


@pytest.mark.asyncio
async def test_who_waits_is_listed_by_place_and_those_without_one_by_age() -> None:
    bed = QueueBed(external=8)
    for name, ordinal, position in (("new", 5, None), ("second", 1, 2), ("older", 3, None), ("first", 9, 1)):
        record = bed.run(name, ordinal=ordinal)
        record.view = structs.replace(record.view, position=position)
        bed.queue.add(record)
    assert [record.run for record in bed.queue.waiting()] == ["first", "second", "older", "new"]


@pytest.mark.asyncio
async def test_nothing_of_a_run_that_was_taken_out_is_known_when_it_waits_again() -> None:
    bed = QueueBed(external=7)
    bed.queue.open()
    [record] = bed.wait("again")
    bed.decide()
    assert bed.queue.lacking() == [record]
    bed.queue.put_back(record)
    bed.queue.remove(record)
    bed.queue.add(record)
    assert bed.queue.lacking() == []
    bed.leases.external = {}
    bed.decide()
    assert bed.granted == ["again"], "it is not paused any more"


@pytest.mark.asyncio
async def test_the_end_of_a_wait_comes_in_time_however_late_places_are_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_queue, "_TOLD_PAUSE_S", 600.0)
    bed = QueueBed(external=8)
    bed.queue.open()
    bed.wait(*(f"waits {number}" for number in range(run_queue._TOLD_ALWAYS + 1)))
    bed.queue.add(bed.run("ends", wait_s=0.05))
    bed.decide()
    await until(lambda: bed.expired == ["ends"])


@pytest.mark.asyncio
async def test_who_waited_behind_one_whose_wait_is_over_is_decided_about_at_once() -> None:
    bed = QueueBed(external=4)
    bed.queue.open()
    bed.queue.add(bed.run("gang", gpus=8, ordinal=-60, wait_s=1.0))
    bed.wait("small", gpus=4)
    bed.decide()
    assert bed.expired == ["gang"]
    await until(lambda: bed.granted == ["small"])


@pytest.mark.asyncio
async def test_of_two_times_to_decide_at_the_sooner_one_counts() -> None:
    bed = QueueBed()
    bed.queue.open()
    bed.queue._serve_at(time.monotonic() + 600.0)
    bed.wait("one")
    bed.queue.serve_soon()
    await until(lambda: bed.granted == ["one"])
    bed.wait("two")
    bed.queue.serve_soon()
    bed.queue._serve_at(time.monotonic() + 600.0)
    await until(lambda: bed.granted == ["one", "two"])
