"""Pretended agents whose runs do rounds, are preempted between two of them, and die with their agent."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_bed import BrokerBed, PretendedAgent, ReportedTo, name_of

from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import (
    AttemptId,
    NodeMessage,
    NodeReport,
    NodeRun,
    RunPhase,
    RunSaved,
    RunStays,
    StartOrder,
)
from jupyter_gpu_release.protocol.runs import Outcome, Save
from jupyter_gpu_release.protocol.wire import decode, encode, pack


class WorkingBed(BrokerBed):
    """``rounds``: what each run's rounds wrote to its folder; a run ends when it has done :attr:`wanted`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, seed: int, **gpus: int) -> None:
        super().__init__(folder, patch, **gpus)
        self.random = random.Random(seed)
        self.agents = {node: WorkingAgent(node, self) for node in gpus}
        #: the gateway, while there is one
        self.service: GatewayService | None = None
        self.rounds: dict[str, list[int]] = {}
        self.wanted = 10**9
        #: attempts that work, by name
        self.at_work: dict[str, WorkingRun] = {}

    def listen(self, service: GatewayService | None) -> None:
        """There is a gateway, or none; a new one is told again what may not have been heard."""
        self.service = service
        for work in [work for agent in self.agents.values() for work in agent.works.values()]:
            work.say_again()

    def tell(self, node: str, message: NodeMessage) -> None:
        """A report, if a gateway is there to hear it: a later one asks. It is taken in at once."""
        if self.service is not None:
            report = NodeReport(node, self.agents[node].life, [message])
            with pytest.raises(StopIteration):
                ReportedTo(self.service).node_report(pack(report)).send(None)

    def kill_agent(self, node: str) -> None:
        """The agent and all that runs there are gone; another one is there."""
        for work in [work for work in self.at_work.values() if work.agent is self.agents[node]]:
            work.end()
        self.agents[node].works.clear()
        self.next_agent(node)


class WorkingAgent(PretendedAgent):
    """An agent that carries its orders out."""

    def __init__(self, node: str, bed: WorkingBed) -> None:
        super().__init__(node)
        self.bed = bed
        self.works: dict[str, WorkingRun] = {}

    async def do_start(self, order: bytes) -> None:
        await super().do_start(order)
        found = msgspec.msgpack.decode(order, type=StartOrder)
        if found.gpu_ids is not None:
            self._begin(found)

    async def do_grant(self, attempt_id: bytes, ids: list[str]) -> None:
        await super().do_grant(attempt_id, ids)
        name = name_of(attempt_id)
        if name in self.orders and name not in self.lent:
            self._begin(msgspec.structs.replace(self.orders[name], gpu_ids=ids))

    def _begin(self, order: StartOrder) -> None:
        name = str(order.attempt_id)
        if name in self.works:
            return
        # all agents can be heard here, so nothing of a run is anywhere when it begins
        others = [work.agent.node for work in self.bed.at_work.values() if work.order.run == order.run]
        assert not others, f"{order.attempt_id} is begun while its run is at work on {others}"
        self.works[name] = WorkingRun(self, order)

    def known(self) -> set[AttemptId]:
        return super().known() | {AttemptId.named(name) for name in self.works}

    def end_attempt(self, name: str) -> None:
        super().end_attempt(name)
        if (work := self.works.pop(name, None)) is not None:
            work.end()

    async def do_step_aside(self, attempt_id: bytes) -> bool:
        await super().do_step_aside(attempt_id)
        work = self.works.get(name_of(attempt_id))
        return work is not None and work.ask()

    async def do_signal(self, attempt_id: bytes, name: str, reason: str) -> None:
        if (work := self.works.get(name_of(attempt_id))) is not None:
            work.signalled = "preempted" if reason == "preempted" else "interrupted"

    async def do_forget_runs(self, attempt_ids: bytes) -> None:
        await super().do_forget_runs(attempt_ids)
        for name in map(str, decode(attempt_ids, list[AttemptId])):
            if name in self.works and name not in self.bed.at_work:
                del self.works[name]

    async def do_runs(self) -> bytes:
        return encode([*(work.as_known() for work in self.works.values()), *self.not_begun()])


class WorkingRun:
    """An attempt at a run."""

    def __init__(self, agent: WorkingAgent, order: StartOrder) -> None:
        self.agent = agent
        self.order = order
        self.signalled = ""
        self._bed, self._asked, self._phase = agent.bed, False, "starting"
        self._outcome: Outcome | None = None
        self._save = order.save
        self._began_s = time.time()
        self.name = str(order.attempt_id)
        self._bed.at_work[self.name] = self
        self._task = asyncio.ensure_future(self._work())
        self._bed.outlives.add(self._task)

    def ask(self) -> bool:
        """Hear a notice; one of five runs cannot be saved just now."""
        if self._bed.random.random() < 0.2:
            self._bed.tell(self.agent.node, RunStays(self.order.attempt_id, "the store is full", for_now=True))
            return False
        self._asked = True
        return True

    def end(self) -> None:
        """It is gone, without a word."""
        self._task.cancel()
        if self._bed.at_work.get(self.name) is self:
            del self._bed.at_work[self.name]

    def say_again(self) -> None:
        """Report where it is."""
        if self._phase != "starting":
            self._say(self._phase)

    def as_known(self) -> NodeRun:
        """What the agent tells of it."""
        return NodeRun(
            self.order.attempt_id,
            self._phase,
            at_s=time.time(),
            outcome=self._outcome,
            save=self._save if self._save is not None and self._save.attempt == self.order.attempt else None,
        )

    async def _work(self) -> None:
        rounds = self._bed.rounds.setdefault(self.order.run, [])
        first = (self._save.round or 0) if self._save is not None else 0
        del rounds[first:]  # files are set back to the save
        await self._pause()
        self._say("running")
        while len(rounds) < self._bed.wanted and not (self.signalled or self._asked):
            rounds.append(len(rounds))
            await self._pause()
            if self._bed.random.random() < 0.1:
                self._save = self._saved(len(rounds))
                self._bed.tell(self.agent.node, RunSaved(self.order.attempt_id, self._save))
        self._say("ended")
        await self._pause()
        self._outcome = self._ended(len(rounds))
        del self._bed.at_work[self.name]
        self._say("released")
        await self._pause()
        self._say("final")

    async def _pause(self) -> None:
        for _ in range(self._bed.random.randrange(1, 12)):
            await asyncio.sleep(0)

    def _saved(self, rounds: int) -> Save:
        number = self._save.number + 1 if self._save is not None else 1
        values = Graph(str(rounds).encode())
        return Save(number, self.order.attempt, time.time(), f"round {rounds}", values=values, round=rounds)

    def _ended(self, rounds: int) -> Outcome:
        values, now_s = Graph(str(rounds).encode()), time.time()
        facts: dict[str, Any] = {"started_s": self._began_s, "ended_s": now_s, "released_s": now_s}
        if self.signalled == "preempted":
            return Outcome("preempted", **facts)
        if self.signalled:
            return Outcome("interrupted", values=values, **facts)
        if self._asked and rounds < self._bed.wanted:
            return Outcome("preempted", values=values, save=self._saved(rounds), **facts)
        return Outcome("ok", values=values, **facts)

    def _say(self, phase: str) -> None:
        self._phase = self.agent.phases[self.name] = phase
        self.agent.marks.add(self.name)
        self._bed.tell(self.agent.node, RunPhase(self.order.attempt_id, phase, time.time(), self._outcome))
