"""Runs are preempted, cancelled and lost at random, over lives of the gateway: each ends once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from soak import sized
from working_agents import WorkingBed

from jupyter_gpu_release.errors import ConflictError
from jupyter_gpu_release.gateway.reconcile import node_liveness
from jupyter_gpu_release.gateway.runs.attempts import MOST_LOST, lost_in_a_row
from jupyter_gpu_release.gateway.runs.machine import Cancel
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.protocol.states import RunState

pytestmark = [pytest.mark.soak, pytest.mark.asyncio]
#: runs at a time: more than there is room for
_RUNS = 10


class Chaos:
    """One gateway after another, and what happens to them."""

    def __init__(self, bed: WorkingBed) -> None:
        self.bed = bed
        self.random = bed.random
        self.runs: dict[str, RunRecord] = {}
        self.cancelled: set[str] = set()
        self.asked = 0

    async def life(self, service: GatewayService, asked: int) -> None:
        """Until so many more were preempted, by somebody or by the scheduler."""
        until = self.asked + asked
        self.runs = {run: found for run in self.runs if (found := service.runs.find(run)) is not None}
        self.bed.listen(service)
        while self.asked < until:
            await self._go_on(service)
            what = self.random.random()
            if len(self.live()) < _RUNS:
                await self._submit(service)
            elif what < 0.9:
                self._ask(service)
            elif what < 0.96:
                await self._cancel(service)
            else:
                self.bed.kill_agent(self.random.choice(list(self.bed.agents)))
        self.bed.listen(None)

    async def end(self, service: GatewayService) -> None:
        """All that is left ends."""
        self.bed.wanted = 0
        self.bed.listen(service)
        self.runs = {run: found for run in self.runs if (found := service.runs.find(run)) is not None}
        await self.until(service, lambda: not self.live())

    def live(self) -> list[RunRecord]:
        return [record for record in self.runs.values() if not record.state.is_terminal]

    async def until(self, service: GatewayService, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + 60.0
        while not condition():
            assert time.monotonic() < deadline_s, [record.view for record in self.live()]
            await self._go_on(service)

    async def _go_on(self, service: GatewayService) -> None:
        """A moment passes; the gateway looks at its nodes now and then."""
        if self.random.random() < 0.1:
            await node_liveness.refresh_nodes(service)
            service.lifecycle.queue.serve()
        await asyncio.sleep(0.001)

    async def _submit(self, service: GatewayService) -> None:
        ranks = self.random.randrange(1, 4)
        ask = ResourceAsk(gpus=ranks, ranks=ranks, any_nodes=ranks > 1)
        priority = self.random.choice(["low", "normal", "normal", "high"])
        detach = self.random.random() < 0.5
        record = await self.bed.submitted(service, ask=ask, priority=priority, restartable=True, detach=detach)
        self.runs[record.run] = record

    def _ask(self, service: GatewayService) -> None:
        record = self.random.choice(self.live())
        self.asked += sum(record.state is RunState.YIELDING for record in self.live()) > 0
        with contextlib.suppress(ConflictError):
            service.lifecycle.preempt(record, "request", "asked by ann")
            self.asked += 1

    async def _cancel(self, service: GatewayService) -> None:
        record = self.random.choice(self.live())
        self.cancelled.add(record.run)
        service.lifecycle.hear(record, Cancel("cancelled by ann"))


@pytest.mark.parametrize("seed", range(sized(2, 20)))
async def test_every_run_ends_once_with_each_round_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    bed = WorkingBed(tmp_path, monkeypatch, seed, a=2, b=4)
    chaos = Chaos(bed)
    for _ in range(3):
        async with bed.life() as service:
            await chaos.life(service, sized(12, 70))
    async with bed.life() as service:
        await chaos.end(service)
        await chaos.until(service, lambda: not bed.ray.groups)
        for run, record in chaos.runs.items():
            rounds = bed.rounds.get(run, [])
            assert rounds == list(range(len(rounds))), f"{run}: each round once"
            outcome = record.outcome
            if record.state is RunState.SUCCEEDED:
                assert outcome is not None
                assert outcome.values is not None
                assert int(outcome.values.stream) == len(rounds), "what came home is what its files say"
            else:
                is_lost = record.state is RunState.LOST and lost_in_a_row(record.view) >= MOST_LOST
                assert is_lost or run in chaos.cancelled, record.view
            assert record.view.notice is None
        assert not service.lifecycle.queue.inventory.scheduler.promised
        assert len(bed.at_work) == 0
