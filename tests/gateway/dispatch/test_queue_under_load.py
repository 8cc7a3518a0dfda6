"""Whatever happens to runs, leases and nodes, in any order: never more than there is, nobody is forgotten."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from queue_bed import QueueBed

from jupyter_gpu_release.protocol.states import LeaseState


class Play(QueueBed):
    """Random events on three nodes; after each the queue decides at once."""

    def __init__(self, seed: int) -> None:
        super().__init__({"a": 4, "b": 4, "c": 8})
        self.random = random.Random(seed)
        self.sent = 0
        self.over: set[str] = set()

    def step(self) -> None:
        draw = self.random
        event = draw.choice(
            [
                self._submit,
                self._submit,
                self._submit,
                self._end,
                self._end,
                self._free,
                self._free,
                self._cancel,
                self._put_back,
                self._fall_silent,
                self._come_back,
                self._use_elsewhere,
                self._keep,
            ]
        )
        event()
        self.decide()
        self.check()

    def _submit(self) -> None:
        nodes = self.random.choice([1, 1, 1, 2])
        gpus = self.random.choice([0, 1, 1, 2, 4, 8] if nodes == 1 else [0, 1, 4])
        self.sent += 1
        self.wait(f"r{self.sent}", gpus=gpus * nodes, nodes=nodes, ranks=nodes, user=self.random.choice("xyz"))

    def _some_lease(self, *states: LeaseState):
        found = [lease for lease in self.leases.all() if lease.state in states]
        return self.random.choice(found) if found else None

    def _end(self) -> None:
        """A run is over; its lease is given back a moment later."""
        lease = self._some_lease(LeaseState.STARTING, LeaseState.WARM)
        if lease is not None:
            self.over.add(lease.run)
            lease.kept, lease.state = None, LeaseState.RELEASING

    def _free(self) -> None:
        lease = self._some_lease(LeaseState.RELEASING)
        if lease is not None:
            self.leases.drop_lease(lease)

    def _keep(self) -> None:
        lease = self._some_lease(LeaseState.STARTING)
        if lease is not None and any(slot.gpus for slot in lease.slots):
            self.over.add(lease.run)
            self.keep(lease)

    def _cancel(self) -> None:
        if waiting := self.queue.waiting():
            record = self.random.choice(waiting)
            self.queue.remove(record)
            self.over.add(record.run)

    def _put_back(self) -> None:
        """Ray did not grant it: it waits again, and its lease is given back."""
        lease = self._some_lease(LeaseState.STARTING)
        if lease is not None and lease.run not in self.over:
            self.queue.put_back(self.records[lease.run])
            lease.state = LeaseState.RELEASING
            if self.random.random() < 0.5:
                self.leases.drop_lease(lease)
            self.queue.resume(self.records[lease.run])

    def _fall_silent(self) -> None:
        node = self.random.choice(self.nodes.alive())
        node.reachable, node.is_lost = False, self.random.random() < 0.5

    def _come_back(self) -> None:
        for node in self.nodes.alive():
            node.reachable, node.is_lost = True, False

    def _use_elsewhere(self) -> None:
        self.leases.external = {"a": self.random.choice([0, 0, 1, 4])}

    def check(self) -> None:
        held: Counter[str] = Counter()
        for lease in self.leases.all():
            for slot in lease.slots:
                held[slot.node] += slot.gpus
        state = self.queue.inventory.in_step().state
        for node in self.nodes.alive():
            outside = state.nodes.outside.get(node.node, (0, 0))[0]
            assert held[node.node] <= node.gpus
            assert state.nodes.free[node.node] == node.gpus * 1000 - held[node.node] * 1000 - outside
        having = {lease.run for lease in self.leases.all()} - self.over
        waiting = {record.run for record in self.queue.waiting()}
        assert {f"r{number}" for number in range(1, self.sent + 1)} == having | waiting | self.over


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens_everybody_starts_in_the_end(seed: int) -> None:
    play = Play(seed)
    play.queue.open()
    for _ in range(150):
        play.step()
    play._come_back()
    play.leases.external = {}
    for _ in range(2 * play.sent):  # whatever runs ends, until nobody is left
        play.decide()
        for lease in play.leases.all():
            play.over.add(lease.run)
            play.leases.drop_lease(lease)
    play.decide()
    assert play.queue.waiting() == []
    assert not play.leases.all()
    assert set(play.granted) - play.over == set()
    assert not any(play.queue.inventory.run_times.knows(f"r{number}") for number in range(1, play.sent + 1))
