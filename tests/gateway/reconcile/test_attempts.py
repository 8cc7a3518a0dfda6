"""A node that was given up comes back with an old attempt: it is ended before anything of a newer one happens there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
import ray
from broker_bed import BrokerBed, PretendedAgent, ReportedTo, look_until, until

from jupyter_gpu_release.gateway.cluster import agent_client
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.dispatch import lifecycle
from jupyter_gpu_release.gateway.reconcile import node_liveness, recovery
from jupyter_gpu_release.gateway.reconcile.stray_leases import Reconciliation
from jupyter_gpu_release.gateway.runs.machine import Lost
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.node import (
    AGENT_PROTOCOL,
    AttemptId,
    NodeMessage,
    NodeReport,
    RunEvents,
    RunPhase,
    RunSaved,
    RunUnbegun,
    StartOrder,
)
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, Save
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.protocol.wire import decode, encode, pack

_GRACE_S = 0.2
_GANG = ResourceAsk(gpus=4, ranks=2, nodes=2)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_liveness, "_HELLO_S", 0.1)
    monkeypatch.setattr(recovery, "_AGENT_PATIENCE_S", 0.1)


def _bed(folder: Path, patch: pytest.MonkeyPatch, **gpus: int) -> BrokerBed:
    bed = BrokerBed(folder, patch, **gpus)
    bed.settings["node_grace_s"] = _GRACE_S
    return bed


class _Slow:
    """An agent that is told to end an attempt, and whose processes take their time."""

    def __init__(self, agent: PretendedAgent, patch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self._agent = agent
        end = PretendedAgent.end_attempt
        patch.setattr(agent, "end_attempt", self.told.append)
        self.end_now = lambda: [end(agent, name) for name in self.told]


async def _given_up(bed: BrokerBed, service: GatewayService, node: str, **facts: object) -> RunRecord:
    """A run of two attempts at most, whose node fell silent."""
    record = await bed.running(service, **facts)  # type: ignore[arg-type]
    bed.agents[node].silent = True
    await look_until(service, lambda: record.attempt == 1)
    return record


async def _ordered(bed: BrokerBed, service: GatewayService, **facts: object) -> tuple[RunRecord, PretendedAgent]:
    """A run whose order is out, and the agent that has it, while Ray is late with the GPUs."""
    bed.ray.is_late = True
    record = await bed.submitted(service, 2, **facts)  # type: ignore[arg-type]
    await until(lambda: bed.ray.keeps_waiting and any(agent.orders for agent in bed.agents.values()))
    (agent,) = [agent for agent in bed.agents.values() if agent.orders]
    return record, agent


@pytest.mark.asyncio
@pytest.mark.parametrize("again", [{"restartable": True}, {"retries": 1}])
@pytest.mark.parametrize("another", [False, True], ids=["alone", "with another run for the same GPUs"])
async def test_a_node_takes_nothing_before_the_old_attempt_is_gone(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: dict[str, object], another: bool
) -> None:
    bed = _bed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        record = await _given_up(bed, service, "a", gpus=4, **again)
        agent, slow = bed.agents["a"], _Slow(bed.agents["a"], monkeypatch)
        waits = await bed.submitted(service, 4) if another else record
        agent.silent = False
        await look_until(service, lambda: slow.told)
        await node_liveness.refresh_nodes(service)
        assert (record.lease, waits.lease, service.leases.all()) == (None, None, [])
        slow.end_now()
        monkeypatch.undo()
        bed.ray.install(monkeypatch)
        await look_until(service, lambda: str(record.attempt_id) in agent.phases or waits.run in agent.phases)
        assert agent.killed == [record.run]
        first, second = (record, waits) if record.lease is not None else (waits, record)
        await until(lambda: first.accepted)
        bed.end(service, first)
        if another:
            await until(lambda: second.accepted)
            bed.end(service, second)
        await until(lambda: {record.state, waits.state} == {RunState.SUCCEEDED} and not bed.ray.groups)


@pytest.mark.asyncio
async def test_two_nodes_never_run_two_attempts_once_both_can_be_heard(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt runs on another node, and the GPUs of the first one are free when its processes are gone."""
    bed = _bed(tmp_path, monkeypatch, a=2, b=2)
    async with bed.life() as service:
        record = await bed.running(service, 2, restartable=True)
        (old,) = [node for node, agent in bed.agents.items() if record.run in agent.phases]
        zombie, other = bed.agents[old], bed.agents["b" if old == "a" else "a"]
        zombie.silent = True
        await look_until(service, lambda: f"{record.run}.1" in other.phases)
        bed.say(service, record, "running")
        waits, slow = await bed.submitted(service, 2), _Slow(zombie, monkeypatch)
        zombie.silent = False
        await look_until(service, lambda: slow.told)
        await node_liveness.refresh_nodes(service)
        assert waits.lease is None
        slow.end_now()
        await look_until(service, lambda: waits.lease is not None)
        assert (zombie.killed, other.killed, record.state) == ([record.run], [], RunState.RUNNING)
        bed.end(service, record)
        await until(lambda: record.state is RunState.SUCCEEDED)


@pytest.mark.asyncio
@pytest.mark.parametrize("grace_s", [_GRACE_S, 3600.0], ids=["after the grace", "within the grace"])
async def test_ranks_that_a_silent_node_lends_are_gone_before_it_takes_another_run(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace_s: float
) -> None:
    bed = _bed(tmp_path, monkeypatch, a=2, b=2)
    bed.settings["node_grace_s"] = grace_s
    async with bed.life() as service:
        record = await bed.running(service, ask=_GANG)
        assert record.lease is not None
        leader, lender = (bed.agents[slot.node] for slot in record.lease.slots)
        lender.silent = True
        await look_until(service, lambda: service.nodes.find(lender.node).silent_since_s)
        monkeypatch.setattr("jupyter_gpu_release.gateway.cluster.agent_client._LEAVE_S", 0.05)
        for phase in ("ended", "released", "final"):
            leader.phases[record.run] = phase
            lost = Outcome("ok") if phase != "ended" else None
            service.lifecycle.hear(record, RunPhase(record.attempt_id, phase, 1.0, lost))
        await until(lambda: record.state is RunState.SUCCEEDED)
        slow = _Slow(lender, monkeypatch)
        waits = await bed.submitted(service, ask=_GANG)
        lender.silent = False
        await look_until(service, lambda: slow.told)
        assert (slow.told[0], waits.lease) == (record.run, None)
        slow.end_now()
        await look_until(service, lambda: waits.lease is not None)


@pytest.mark.asyncio
async def test_a_gateway_that_was_away_gives_a_node_no_run_before_the_old_attempt_is_gone(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node came back while nobody was there to see it."""
    bed = _bed(tmp_path, monkeypatch, a=4)
    async with bed.life() as first:
        record = await _given_up(bed, first, "a", gpus=4, restartable=True)
        await bed.in_ledger(first)
    agent, slow = bed.agents["a"], _Slow(bed.agents["a"], monkeypatch)
    agent.silent = False
    async with bed.life() as second:
        again = second.runs.get(record.run)
        await until(lambda: slow.told)
        second.lifecycle.queue.serve()
        await asyncio.sleep(0)
        assert (again.attempt, again.lease) == (1, None)
        slow.end_now()
        monkeypatch.undo()
        bed.ray.install(monkeypatch)
        await look_until(second, lambda: f"{record.run}.1" in agent.phases)


def _old_words(old: AttemptId) -> list[NodeMessage]:
    return [
        RunEvents(old, [Event(1, 1.0, "stream", {"name": "stdout", "text": "a zombie\n"})]),
        RunSaved(old, Save(7, 0, 1.0, "round 7")),
        RunPhase(old, "ended", 1.0),
        RunPhase(old, "released", 1.0, Outcome("ok")),
        RunPhase(old, "final", 1.0, Outcome("ok")),
        RunUnbegun(old, "it never began"),
    ]


@pytest.mark.asyncio
async def test_what_an_old_attempt_says_changes_nothing_and_is_answered_with_its_end(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = _bed(tmp_path, monkeypatch, a=2, b=2)
    async with bed.life() as service:
        record = await bed.running(service, 2, restartable=True)
        (old,) = [node for node, agent in bed.agents.items() if record.run in agent.phases]
        other = bed.agents["b" if old == "a" else "a"]
        bed.agents[old].silent = True
        await look_until(service, lambda: f"{record.run}.1" in other.phases)
        bed.say(service, record, "running")
        before, seq, bed.agents[old].silent = record.stage, record.view.seq, False
        words = _old_words(AttemptId(record.run, 0))
        await ReportedTo(service).node_report(pack(NodeReport(old, "first", words)))
        assert (record.stage, record.view.seq, record.save, record.tail.last) == (before, seq, None, 0)
        await until(lambda: bed.agents[old].killed == [record.run])
        assert other.killed == []


@pytest.mark.asyncio
@pytest.mark.parametrize("granted", ["as soon as it can be heard", "after the gateway has heard it"])
async def test_a_start_that_came_to_nothing_is_never_begun_beside_the_next_one(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, granted: str
) -> None:
    """Its node is silent when it is given up, and Ray tells that node of the GPUs all the same, too late."""
    monkeypatch.setattr(lifecycle, "_AGENT_BACK_S", 0.1)
    monkeypatch.setattr(agent_client, "CALL_S", 0.1)
    bed = _bed(tmp_path, monkeypatch, a=2, b=2)
    bed.settings["node_grace_s"] = 3600.0
    async with bed.life() as service:
        record, old = await _ordered(bed, service)
        other = bed.agents["b" if old.node == "a" else "a"]
        old.silent, bed.ray.is_late = True, False
        await look_until(service, lambda: record.accepted)
        ((node, late, ids),) = bed.ray.late_grants
        assert (node, late, record.attempt_id) == (old.node, record.run, AttemptId(record.run, 1))
        assert (record.view.attempts, list(other.phases)) == ([], [f"{record.run}.1"])
        waits, old.silent = await bed.submitted(service, 2), False
        if granted == "as soon as it can be heard":
            await old.hear_grant(late, ids)
        await look_until(service, lambda: waits.accepted)
        await old.hear_grant(late, ids)
        assert (list(old.phases), list(other.phases)) == ([waits.run], [f"{record.run}.1"])
        for run in (record, waits):
            bed.end(service, run)
        await until(lambda: {record.state, waits.state} == {RunState.SUCCEEDED} and not bed.ray.groups)
        assert (record.view.attempts, other.killed) == ([], [])


@pytest.mark.asyncio
async def test_gpus_of_a_start_that_was_answered_too_late_are_free_when_its_processes_are_gone(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_client, "_LEAVE_S", 60.0)
    bed, start, gone = _bed(tmp_path, monkeypatch, a=2), PretendedAgent.do_start, asyncio.Event()

    async def start_too_late(agent: PretendedAgent, order: bytes) -> None:
        await start(agent, order)
        await agent.hear_grant(str(decode(order, StartOrder).attempt_id), ["0", "1"])
        raise ray.exceptions.RayTaskError("start", "too late", OSError("too late"))

    async with bed.life() as service:
        agent, slow = bed.agents["a"], _Slow(bed.agents["a"], monkeypatch)
        monkeypatch.setattr(agent, "until_gone", lambda _: gone.wait())
        monkeypatch.setattr(PretendedAgent, "do_start", start_too_late)
        record = await bed.submitted(service, 2)
        waits = await bed.submitted(service, 2)
        await until(lambda: slow.told == [record.run] * 2)  # it was abandoned, and its end is waited for
        assert (record.state, waits.lease, list(agent.phases)) == (RunState.RELEASING, None, [record.run])
        monkeypatch.setattr(PretendedAgent, "do_start", start)
        slow.end_now()
        gone.set()
        await look_until(service, lambda: waits.accepted)
        bed.end(service, waits)
        await until(lambda: (record.state, waits.state) == (RunState.LOST, RunState.SUCCEEDED) and not bed.ray.groups)


@pytest.mark.asyncio
async def test_a_new_gateway_knows_which_starts_came_to_nothing(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has been put back loses an attempt later, and another gateway begins the third."""
    bed = _bed(tmp_path, monkeypatch, a=2)
    async with bed.life() as first:
        record, _ = await _ordered(bed, first, retries=1)
        bed.ray.is_late = False
        await until(lambda: record.accepted)
        bed.say(first, record, "running")
        first.lifecycle.hear(record, Lost(record.attempt_id, "as if its process had been killed"))
        await until(lambda: record.accepted and record.attempt == 2)
        bed.say(first, record, "running")
        await bed.in_ledger(first)
    async with bed.life() as second:
        again = second.runs.get(record.run)
        assert (again.state, again.attempt, len(again.view.attempts)) == (RunState.RUNNING, 2, 1)
        bed.end(second, again)
        await until(lambda: again.state is RunState.SUCCEEDED and not bed.ray.groups)


@pytest.mark.asyncio
async def test_an_order_that_the_ledger_has_not_noted_is_of_the_attempt_before(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway dies just after a grant, the ledger still says queued, and the node that has the order is silent."""
    monkeypatch.setattr(agent_client, "CALL_S", 0.1)
    bed = _bed(tmp_path, monkeypatch, a=2, b=2)
    async with bed.life() as first:
        record, old = await _ordered(bed, first, restartable=True)
        await bed.in_ledger(first)
        view = msgspec.structs.replace(record.view, state=RunState.QUEUED.word, granted_at=None, hosts=[])
        with first.engine.begin() as connection:
            database.update_run(connection, view, None)
    other = bed.agents["b" if old.node == "a" else "a"]
    old.silent, bed.ray.is_late = True, False
    bed.ray.groups.clear()
    async with bed.life() as second:
        again = second.runs.get(record.run)
        await look_until(second, lambda: again.accepted)
        assert (list(old.orders), list(other.phases)) == ([record.run], [f"{record.run}.1"])
        bed.end(second, again)
        await until(lambda: again.state is RunState.SUCCEEDED and not bed.ray.groups)


@pytest.mark.asyncio
async def test_an_attempt_that_its_node_did_not_forget_is_forgotten_later(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = _bed(tmp_path, monkeypatch, a=1)
    bed.agents["a"].faults["forget_runs"] = TimeoutError("busy")
    async with bed.life() as service:
        record = await bed.running(service, 1, restartable=True)
        for phase in ("ended", "released", "final"):
            stepped = Outcome("preempted", save=Save(1, 0, 1.0, "round 2")) if phase != "ended" else None
            bed.agents["a"].phases[record.run] = phase
            service.lifecycle.hear(record, RunPhase(record.attempt_id, phase, 1.0, stepped))
        await until(lambda: record.attempt == 1)
        await until(lambda: record.accepted)
        assert bed.agents["a"].phases.keys() == {f"{record.run}.1"}
        bed.end(service, record)
        await until(lambda: record.state is RunState.SUCCEEDED and not bed.ray.groups)


@pytest.mark.asyncio
async def test_the_comparison_ends_old_attempts_of_runs_that_go_on(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = _bed(tmp_path, monkeypatch, a=2, b=2)
    async with bed.life() as service:
        record = await bed.running(service, 2, restartable=True)
        (old,) = [node for node, agent in bed.agents.items() if record.run in agent.phases]
        service.lifecycle.hear(record, Lost(record.attempt_id, "as if its node had been away"))
        await until(lambda: record.accepted and record.attempt == 1)
        bed.agents[old].phases[record.run] = "running"
        reconciliation = Reconciliation(service)
        for _ in range(5):
            await reconciliation.compare_once()
        await until(lambda: record.run in bed.agents[old].killed)
        assert record.state is RunState.STARTING
        assert encode(record.attempt_id)


@pytest.mark.asyncio
async def test_an_agent_from_before_an_upgrade_gets_no_run_that_could_have_a_second_attempt(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made anew once its runs have ended; then it does."""
    bed = _bed(tmp_path, monkeypatch, a=2)
    bed.agents["a"].protocol = 0
    async with bed.life() as service:
        once = await bed.running(service, 1)
        again = [await bed.submitted(service, 1, **facts) for facts in ({"restartable": True}, {"retries": 1})]
        assert [record.lease for record in again] == [None, None]
        assert "a node agent of this version" in again[0].view.reason
        assert "host-a" not in again[0].view.reason
        bed.end(service, once)
        await until(lambda: once.state is RunState.SUCCEEDED and once.run not in bed.agents["a"].phases)
        assert [record.lease for record in again] == [None, None]
        bed.agents["a"].protocol = AGENT_PROTOCOL
        bed.next_agent("a")
        await look_until(service, lambda: all(record.lease for record in again))


@pytest.mark.asyncio
async def test_a_restartable_run_goes_on_over_an_upgrade_of_the_gateway(
    hurry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second attempt is under way on an agent that speaks of runs only; the third is elsewhere."""
    bed = _bed(tmp_path, monkeypatch, a=2, b=2)
    async with bed.life() as first:
        record = await bed.running(first, 2, restartable=True)
        first.lifecycle.hear(record, Lost(record.attempt_id, "as if its process had been killed"))
        await until(lambda: record.accepted and record.attempt == 1)
        bed.say(first, record, "running")
        await bed.in_ledger(first)
        (node,) = [slot.node for slot in record.lease.slots]
    for agent in bed.agents.values():
        agent.end_attempt(record.run)
    bed.agents[node].protocol = 0
    async with bed.life() as second:
        again = second.runs.get(record.run)
        assert (again.state, again.attempt) == (RunState.RUNNING, 1)
        body = encode(
            {
                "node": node,
                "incarnation": "first",
                "messages": [
                    {"type": "events", "run": record.run, "events": [Event(1, 1.0, "stream", {"name": "stdout"})]},
                    {"type": "saved", "run": record.run, "save": Save(1, 1, 1.0, "round 5")},
                ],
            }
        )
        await ReportedTo(second).node_report(pack(decode(body, dict[str, object])))
        assert (again.tail.last, again.save.place) == (1, "round 5")
        second.lifecycle.preempt(again, "request", "for maintenance")
        await until(lambda: bed.agents[node].stepping_aside == [f"{record.run}.1"])
        bed.agents[node].phases[f"{record.run}.1"] = "final"
        for phase in ("ended", "final"):
            outcome = Outcome("preempted", save=Save(2, 1, 1.0, "round 6")) if phase == "final" else None
            told = {"type": "phase", "run": record.run, "attempt": 1, "phase": phase, "at_s": 1.0, "outcome": outcome}
            body = encode({"node": node, "incarnation": "first", "messages": [told]})
            await ReportedTo(second).node_report(pack(decode(body, dict[str, object])))
        await until(lambda: again.attempt == 2 and again.accepted)
        assert again.lease.slots[0].node != node
        assert again.save.place == "round 6"
