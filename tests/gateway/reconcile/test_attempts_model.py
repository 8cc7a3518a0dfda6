"""Random sequences of what happens to runs of several attempts: no GPU has two of them, and each run ends once.

The real gateway's service decides; Ray and the agents are pretended. Time passes by what happens: a node is given up
when the model says that its grace is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import ray
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from soak import sized
from working_agents import WorkingAgent, WorkingBed, WorkingRun

from jupyter_gpu_release.errors import ClusterError, ConflictError
from jupyter_gpu_release.gateway import service as gateway_service
from jupyter_gpu_release.gateway.dispatch import lifecycle
from jupyter_gpu_release.gateway.reconcile import node_liveness, recovery
from jupyter_gpu_release.gateway.reconcile.stray_leases import Reconciliation
from jupyter_gpu_release.gateway.runs.machine import Cancel
from jupyter_gpu_release.gateway.runs.record import Releasing, RunRecord, Starting
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.node import AttemptId, JoinOrder, StartOrder
from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.protocol.wire import decode

_NODES = {"a": 2, "b": 2}
_GRACE_S = 3600.0
#: what reconciliation would mend after its sure time is to be right without it
_NEVER_S = 10**6
#: rounds of a run that nothing happens to
_WANTED = 300
_KINDS: dict[str, dict[str, Any]] = {"plain": {}, "restartable": {"restartable": True}, "retried": {"retries": 2}}


@dataclass(frozen=True)
class Silence:
    """A node that cannot be heard, in the worst moment: others want its GPUs."""

    since: Literal["work", "order", "late grant"]
    #: what becomes of its run
    meanwhile: Literal["", "die", "finish", "cancel"]
    #: it comes back while there is no gateway
    restarts: bool
    kind: str
    gpus: int
    number: int


_SILENCES = st.builds(
    Silence,
    since=st.sampled_from(["work", "order", "late grant"]),
    meanwhile=st.sampled_from(["", "die", "finish", "cancel"]),
    restarts=st.booleans(),
    kind=st.sampled_from(sorted(_KINDS)),
    gpus=st.sampled_from([2, 4]),
    number=st.integers(0, 9),
)


class MortalAgent(WorkingAgent):
    """Its processes take some looks of the gateway to end; while it stands still its calls fail and its processes go
    on.
    """

    def __init__(self, node: str, bed: MortalBed) -> None:
        super().__init__(node, bed)
        #: the GPUs of lent ranks, by the attempt
        self.lent_gpus: dict[str, list[str]] = {}
        self.ending: dict[str, asyncio.Future[None]] = {}

    async def _answer(self, name: str, work: Any) -> Any:
        if self.silent:
            raise ray.exceptions.GetTimeoutError(f"{self.node} stands still")
        return await super()._answer(name, work)

    def check_alone(self, order: StartOrder) -> None:
        """A node that nobody could reach may have an older attempt, on GPUs that nobody else touches; on the same
        node there is none.
        """
        here = [work.name for work in self.bed.at_work.values() if work.agent is self and work.order.run == order.run]
        assert not here, f"{order.attempt_id} is begun beside {here}"

    async def do_start_remote_ranks(self, order: bytes) -> None:
        await super().do_start_remote_ranks(order)
        found = decode(order, JoinOrder)
        self.lent_gpus[str(found.attempt_id)] = found.gpu_ids or []

    async def do_grant(self, attempt_id: bytes, ids: list[str]) -> None:
        await super().do_grant(attempt_id, ids)
        name = str(decode(attempt_id, AttemptId))
        if name in self.lent:
            self.lent_gpus[name] = ids

    async def do_end_remote_ranks(self, attempt_id: bytes) -> None:
        name = str(decode(attempt_id, AttemptId))
        self.end_attempt(name)
        await self.until_gone(name)

    def end_attempt(self, name: str) -> None:
        if name not in self.works and name not in self.lent:  # nothing has begun
            super().end_attempt(name)
        elif name not in self.ending:
            self.ending[name] = asyncio.ensure_future(self._end(name))
            self.bed.outlives.add(self.ending[name])

    async def _end(self, name: str) -> None:
        until = self.bed.looks + self.bed.random.randrange(0, 3)
        while self.bed.looks < until:
            await asyncio.sleep(0)
        super().end_attempt(name)
        self.lent_gpus.pop(name, None)
        del self.ending[name]

    async def until_gone(self, name: str) -> None:
        if (ending := self.ending.get(name)) is not None:
            await asyncio.shield(ending)

    def touched(self) -> list[tuple[str, str, str]]:
        """Node, GPU and attempt, for all that its processes may use."""
        works = [(name, work.order.gpu_ids or []) for name, work in self.bed.at_work.items() if work.agent is self]
        used = [*works, *self.lent_gpus.items()]
        return [(self.node, gpu, name) for name, gpus in used for gpu in gpus]


class MortalBed(WorkingBed):
    agents: dict[str, MortalAgent]  # type: ignore[assignment]

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, seed: int) -> None:
        super().__init__(folder, patch, seed, **_NODES)
        self.settings["node_grace_s"] = _GRACE_S
        self.settings["reconcile_interval_s"] = _NEVER_S
        self.wanted = _WANTED
        #: times that the gateway looked at its nodes: what takes long takes some of them
        self.looks = 0
        self.agents = {node: MortalAgent(node, self) for node in _NODES}


def _is_under_way(record: RunRecord) -> bool:
    """Tell if it is being started, or its lease is being given back."""
    return isinstance(record.stage, Releasing) or (isinstance(record.stage, Starting) and not record.accepted)


class AttemptsMachine(RuleBasedStateMachine):
    """One cluster, over lives of its gateway."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(recovery, "_AGENT_PATIENCE_S", 0.0)
        self.patch.setattr(gateway_service, "_AGENT_WAIT_S", 0.05)
        self.patch.setattr(lifecycle, "_AGENT_BACK_S", 0.02)
        self.patch.setattr(lifecycle, "_AGAIN_S", 0.001)
        self.folder = Path(tempfile.mkdtemp(prefix="jgr-model-"))
        self.loop = asyncio.new_event_loop()
        self.ends: dict[str, str] = {}

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize(seed=st.integers(0, 10**6), silence=_SILENCES)
    def begin(self, seed: int, silence: Silence) -> None:
        self.bed = MortalBed(self.folder, self.patch, seed)
        self.runs: list[str] = []
        self.do(self._live())
        self.do(self._meet(silence))

    async def _live(self) -> None:
        self.life: AbstractAsyncContextManager[GatewayService] = self.bed.life()
        self.service = await self.life.__aenter__()
        self.reconciliation = Reconciliation(self.service)
        self.bed.listen(self.service)

    async def _die(self) -> None:
        self.bed.listen(None)
        await self.life.__aexit__(None, None, None)

    def records(self) -> list[RunRecord]:
        found = [self.service.runs.find(run) for run in self.runs]
        return [record for record in found if record is not None]

    def one(self, number: int) -> RunRecord | None:
        live = [record for record in self.records() if not record.state.is_terminal]
        return live[number % len(live)] if live else None

    async def _pass(self, moments: int) -> None:
        """Time passes; at each moment no GPU is touched by two attempts."""
        for _ in range(moments):
            await asyncio.sleep(0)
            self.check_gpus()

    async def _settle(self) -> None:
        """Starts and ends that are under way have come to something, or wait for a node."""
        for _ in range(100):
            await self._pass(5)
            if not any(map(_is_under_way, self.records())):
                break
            await asyncio.sleep(0.001)

    async def _look(self) -> None:
        self.bed.looks += 1
        await node_liveness.refresh_nodes(self.service)
        self.service.lifecycle.queue.serve()
        await self._pass(30)

    # -------------------------------------------------------------------------------------------- rules
    @rule(kind=st.sampled_from(sorted(_KINDS)), gpus=st.sampled_from([1, 1, 2, 4]))
    def submit(self, kind: str, gpus: int) -> None:
        self.do(self._submit(kind, gpus))

    async def _submit(self, kind: str, gpus: int) -> None:
        ask = ResourceAsk(gpus=4, ranks=2, nodes=2) if gpus == 4 else ResourceAsk(gpus=gpus)
        with contextlib.suppress(ClusterError):  # no agent has answered this gateway yet
            self.runs.append((await self.bed.submitted(self.service, ask=ask, **_KINDS[kind])).run)
        await self._pass(30)

    @rule(silence=_SILENCES)
    def meet(self, silence: Silence) -> None:
        self.do(self._meet(silence))

    async def _meet(self, silence: Silence) -> None:
        """A node is silent, other runs ask for its GPUs, and it comes back with what it had."""
        await self._clear()
        await (self._silent_at_work(silence) if silence.since == "work" else self._silent_at_start(silence))
        if silence.meanwhile == "cancel" and (record := self.one(0)) is not None:
            self.service.lifecycle.hear(record, Cancel("cancelled by ann"))
        for _ in _NODES:
            await self._submit("plain", 2)
        await self._settle()
        if silence.restarts:
            await self._die()
        for node in _NODES:
            await self._come_back(node)
        if silence.restarts:
            await self._live()
        await self._settle()
        for _ in range(4):
            await self._look()
            await self._settle()
            await self._grant_late()

    async def _silent_at_work(self, silence: Silence) -> None:
        """Beyond the grace."""
        await self._submit(silence.kind, silence.gpus)
        await self._settle()
        if not (works := self._at_work()):
            return
        agent = works[silence.number % len(works)].agent
        await self._give_up(agent.node)
        await self._settle()
        for work in [work for work in works if work.agent is agent]:
            match silence.meanwhile:
                case "die":
                    work.die()
                case "finish":
                    work.finish()
        await self._pass(50)

    async def _silent_at_start(self, silence: Silence) -> None:
        """It is given a run, and hears of its GPUs when nobody expects that any more."""
        nodes = [self.bed.agents[node] for node in sorted(_NODES)]
        if silence.since == "order":
            nodes[silence.number % len(nodes)].silent = True
        self.bed.ray.is_late = silence.since == "late grant"
        await self._submit(silence.kind, silence.gpus)
        for _ in range(100 if self.bed.ray.is_late else 0):
            await self._pass(1)
            if ordered := [agent for agent in nodes if agent.orders or agent.lent]:
                ordered[silence.number % len(ordered)].silent = True
                break
            await asyncio.sleep(0.001)
        self.bed.ray.is_late = False
        await self._settle()

    async def _grant_late(self) -> None:
        grants, self.bed.ray.late_grants = self.bed.ray.late_grants, []
        for node, name, ids in grants:
            await self.bed.agents[node].hear_grant(name, ids)
            await self._pass(5)

    async def _clear(self) -> None:
        """Nothing runs, and all nodes can be heard."""
        for node in _NODES:
            await self._come_back(node)
        for record in self.records():
            self.service.lifecycle.hear(record, Cancel("cancelled by ann", True))
        for _ in range(4):
            await self._look()
            await self._settle()

    def _at_work(self) -> list[WorkingRun]:
        return [work for _, work in sorted(self.bed.at_work.items()) if not work.agent.silent]

    @rule(moments=st.integers(1, 200))
    def go_on(self, moments: int) -> None:
        self.do(self._pass(moments))

    @rule()
    def look(self) -> None:
        self.do(self._look())

    @rule()
    def compare(self) -> None:
        async def compare() -> None:
            for _ in range(5):
                await self.reconciliation.compare_once()
                await self._pass(5)

        self.do(compare())

    @rule(number=st.integers(0, 9))
    def preempt(self, number: int) -> None:
        async def ask(record: RunRecord) -> None:
            with contextlib.suppress(ConflictError):
                self.service.lifecycle.preempt(record, "request", "asked by ann")
            await self._pass(20)

        if (record := self.one(number)) is not None:
            self.do(ask(record))

    @rule(number=st.integers(0, 9), kill=st.booleans())
    def cancel(self, number: int, kill: bool) -> None:
        async def cancel(record: RunRecord) -> None:
            self.service.lifecycle.hear(record, Cancel("cancelled by ann", kill))
            await self._pass(20)

        if (record := self.one(number)) is not None:
            self.do(cancel(record))

    @rule(node=st.sampled_from(sorted(_NODES)))
    def silence(self, node: str) -> None:
        """The agent stands still, or its network is gone: its cells go on."""
        self.bed.agents[node].silent = True
        self.do(self._look())

    @rule(node=st.sampled_from(sorted(_NODES)))
    def give_up(self, node: str) -> None:
        self.do(self._give_up(node))

    async def _give_up(self, node: str) -> None:
        """The node is silent for longer than its grace."""
        self.bed.agents[node].silent = True
        await self._look()
        if (found := self.service.nodes.find(node)) is not None:
            await node_liveness._judge_silence(self.service, found, time.monotonic() + _GRACE_S)
        await self._look()

    @rule(node=st.sampled_from(sorted(_NODES)), looks=st.booleans())
    def come_back(self, node: str, looks: bool) -> None:
        self.do(self._come_back(node))
        if looks:
            self.do(self._look())

    async def _come_back(self, node: str) -> None:
        self.bed.agents[node].come_back()
        await self._pass(3)

    @rule(number=st.integers(0, 9))
    def kill_rank(self, number: int) -> None:
        async def kill() -> None:
            if works := self._at_work():
                works[number % len(works)].die()
            await self._pass(10)

        self.do(kill())

    @rule(node=st.sampled_from(sorted(_NODES)))
    def kill_agent(self, node: str) -> None:
        """With all that it runs; a new one is there."""

        async def kill() -> None:
            agent = self.bed.agents[node]
            self.bed.looks += 9  # what it ends, it has ended
            for ending in list(agent.ending.values()):
                await ending
            agent.lent_gpus.clear()
            agent.unsaid.clear()
            agent.silent = False
            self.bed.kill_agent(node)
            await self._look()

        self.do(kill())

    @rule()
    def restart_gateway(self) -> None:
        self.do(self._restart())

    async def _restart(self) -> None:
        await self._die()
        await self._live()
        await self._pass(30)

    # --------------------------------------------------------------------------------------- invariants
    def check_gpus(self) -> None:
        users: dict[tuple[str, str], str] = {}
        for agent in self.bed.agents.values():
            for node, gpu, name in agent.touched():
                other = users.setdefault((node, gpu), name)
                assert other == name, f"GPU {gpu} of {node} is touched by {other} and {name}"

    @invariant()
    def each_run_ends_once(self) -> None:
        for record in self.records() if hasattr(self, "service") else []:
            if record.state.is_terminal:
                assert self.ends.setdefault(record.run, record.state.word) == record.state.word

    def teardown(self) -> None:
        try:
            if hasattr(self, "service"):
                self.do(self._become_quiet())
                self.each_run_ends_once()
                self.do(self._die())
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.do(asyncio.sleep(0))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.patch.undo()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _become_quiet(self) -> None:
        for node in _NODES:
            await self._come_back(node)
        await self._grant_late()
        self.bed.wanted = 0
        deadline_s = time.monotonic() + 60.0
        while not self._is_quiet():
            assert time.monotonic() < deadline_s, self._left()
            await self._look()
            await self.reconciliation.compare_once()
            await asyncio.sleep(0.001)

    def _is_quiet(self) -> bool:
        return all(record.state.is_terminal for record in self.records()) and not any(self._left())

    def _left(self) -> tuple[Any, ...]:
        live = [record.view for record in self.records() if not record.state.is_terminal]
        touched = [use for agent in self.bed.agents.values() for use in agent.touched()]
        return live, touched, self.service.leases.all(), list(self.bed.ray.groups.values())


@pytest.mark.slow("many random histories")
@pytest.mark.soak
def test_no_gpu_has_two_attempts_and_each_run_ends_once() -> None:
    run_state_machine_as_test(
        AttemptsMachine,
        settings=settings(
            max_examples=sized(12, 2000),
            stateful_step_count=sized(25, 50),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
