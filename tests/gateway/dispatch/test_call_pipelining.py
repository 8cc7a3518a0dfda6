"""Calls that are promised to a node: who decides about them while it does not answer, and once it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.dispatch.call_pipelining import CallPipeline
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.node.agent.process_reuse import AssignedCalls
from jupyter_gpu_release.protocol.node import RunStartedAhead, StartOrder
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.scheduling.snapshot import Slot


def _record(name: str) -> RunRecord:
    view = RunView(name, "ann", "queued", session="s")
    return RunRecord(view, 1, RunRequest(name, "s", ResourceAsk(gpus=1), b"", series="f"))


class _Node:
    """An agent that keeps what it is promised; ``life`` changes when it is started anew."""

    def __init__(self) -> None:
        self.life = "one"
        self.promised: list[str] = []
        self.begun: list[str] = []
        self.answers = True
        self.hears = asyncio.Event()
        self.hears.set()

    async def promise(self, _node: str, orders: list[StartOrder]) -> str:
        await self.hears.wait()
        self.promised += [order.run for order in orders]
        return self.life

    async def withdraw(self, _node: str, runs: list[str] | None) -> tuple[str, list[RunStartedAhead]]:
        if not self.answers:
            raise ClusterError("no answer")
        self.promised = [run for run in self.promised if runs is not None and run not in runs]
        return self.life, [RunStartedAhead(run, "first", 1.0) for run in runs or () if run in self.begun]

    def find(self, _node: str) -> None:
        return None


class _Queue:
    """The first that waits is next."""

    def __init__(self, waits: list[RunRecord]) -> None:
        self.waits = waits

    def __contains__(self, run: str) -> bool:
        return any(record.run == run for record in self.waits)

    def followers(self, _leases: object, _series: str) -> list[tuple[RunRecord, str]]:
        return [(record, "n") for record in self.waits[:1]]

    def has_more_of(self, _record: RunRecord) -> bool:
        return True

    def remove(self, record: RunRecord) -> None:
        self.waits.remove(record)

    def serve(self) -> None:
        pass


class _Bed:
    """One call works on one GPU; ``waits`` would follow it."""

    def __init__(self, waits: list[RunRecord]) -> None:
        works = _record("first")
        works.is_followed = works.accepted = True
        lease = SimpleNamespace(run="first", gpu_ids=(("0",),), slots=(Slot("n", 1, 0),), incarnation="one")
        records = {record.run: record for record in (works, *waits)}
        self.node, self.marked, self.dead = _Node(), set[str](), list[str]()
        self.queue: Any = _Queue(waits)
        manifests = SimpleNamespace(
            create_folder=lambda _: asyncio.sleep(0), folder=lambda run: f"/{run}", may_have_begun=self._is_marked
        )
        self.call_pipeline = CallPipeline(
            self.queue, SimpleNamespace(get=records.get), SimpleNamespace(all=lambda: [lease]), self.node, manifests,
            asyncio.ensure_future,
        )  # fmt: skip
        self.call_pipeline.on_begun = lambda message: self.call_pipeline.begun(records[message.run])
        self.call_pipeline.on_dead, self.call_pipeline.on_cancelled = self._on_dead, self.queue.remove

    async def _is_marked(self, run: str) -> bool:
        return run in self.marked

    def _on_dead(self, _node: str, living: str) -> None:
        self.dead.append(living)

    async def settle(self) -> None:
        call_pipeline = self.call_pipeline
        call_pipeline.renew_soon()
        while call_pipeline._due or call_pipeline._giving or call_pipeline._withdrawing:
            await asyncio.sleep(0.001)


def _run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_a_call_is_promised_and_given_back_when_another_is_next() -> None:
    async def test() -> None:
        first, second = _record("a"), _record("b")
        bed = _Bed([first, second])
        await bed.settle()
        assert bed.node.promised == ["a"]
        bed.queue.waits = [second, first]
        await bed.settle()
        assert bed.node.promised == ["b"]
        assert (bed.queue.is_promised("a"), bed.queue.is_promised("b")) == (False, True)

    _run(test)


def test_one_that_has_begun_is_not_given_back() -> None:
    async def test() -> None:
        record = _record("a")
        bed = _Bed([record])
        await bed.settle()
        bed.node.begun, bed.node.promised = ["a"], []
        assert not await bed.call_pipeline.is_given_back(record)
        assert bed.queue.waits == []  # its word came with the answer

    _run(test)


def test_a_node_that_does_not_answer_keeps_its_promise() -> None:
    async def test() -> None:
        record = _record("a")
        bed = _Bed([record])
        await bed.settle()
        bed.node.answers = False
        assert not await bed.call_pipeline.is_given_back(record)
        assert bed.queue.is_promised("a")
        bed.node.answers, bed.node.life = True, "two"  # and a new agent cannot know what the old one began
        assert not await bed.call_pipeline.is_given_back(record)
        assert bed.queue.is_promised("a")
        assert bed.dead == ["two"]

    _run(test)


def test_one_that_was_cancelled_meanwhile_ends_once_it_is_given_back() -> None:
    async def test() -> None:
        record = _record("a")
        bed = _Bed([record])
        await bed.settle()
        bed.node.answers = False
        record.cancelled = "interrupted"
        assert not await bed.call_pipeline.is_given_back(record)
        bed.node.answers = True
        assert not await bed.call_pipeline.is_given_back(record)
        assert bed.queue.waits == []
        assert not bed.queue.is_promised("a")

    _run(test)


def test_a_promise_that_comes_after_its_withdrawal_is_refused() -> None:
    """What is asked of an actor may arrive in another order."""
    first, second = (StartOrder(run, b"", "", gpus=1, series="f") for run in "ab")
    ended = StartOrder("ended", b"", "", gpus=1, gpu_ids=["3"], series="f")
    calls = AssignedCalls()
    calls.withdraw(["a"])
    calls.add(first)
    calls.add(second)
    follows = calls.next_after(ended)
    assert follows is not None
    assert (follows.run, follows.gpu_ids, follows.after) == ("b", ["3"], "ended")
    assert calls.next_after(ended) is None
    calls.add(second)
    calls.add(msgspec.structs.replace(first, ordinal=-1))
    follows = calls.next_after(ended)
    assert follows is not None
    assert follows.run == "a"  # it was promised later, and comes first
    assert calls.next_after(msgspec.structs.replace(ended, series="g")) is None
    calls.withdraw(None)
    assert calls.next_after(ended) is None


def test_when_the_node_is_gone_what_has_not_begun_waits_again() -> None:
    async def test() -> None:
        for marked in (False, True):
            record = _record("a")
            bed = _Bed([record])
            await bed.settle()
            if marked:
                bed.marked.add("a")
            assert await bed.call_pipeline.forget("n", "one") == []
            assert bed.queue.is_promised("a")
            assert await bed.call_pipeline.forget("n", "two") == ([record] if marked else [])
            assert not bed.queue.is_promised("a")

    _run(test)


def test_one_that_follows_what_nobody_has_heard_of_yet_is_neither_given_back_nor_ended() -> None:
    """The word of the call before it is on its way, with its own behind it."""

    async def test() -> None:
        record = _record("a")
        bed = _Bed([record])
        await bed.settle()
        heard: list[RunStartedAhead] = []
        bed.call_pipeline.on_begun = heard.append  # as the lifecycle does while the call before it waits
        bed.node.begun, bed.node.promised = ["a"], []
        assert not await bed.call_pipeline.is_given_back(record)
        assert [message.run for message in heard] == ["a"]
        assert bed.queue.is_promised("a")
        assert bed.dead == []

    _run(test)


def test_a_promise_that_reached_the_next_agent_is_its_own() -> None:
    async def test() -> None:
        record = _record("a")
        bed = _Bed([record])
        bed.node.hears.clear()
        bed.call_pipeline.renew_soon()
        while not bed.call_pipeline._giving:
            await asyncio.sleep(0.001)
        bed.node.life = "two"  # the one that was meant is gone
        forgetting = asyncio.ensure_future(bed.call_pipeline.forget("n", "two"))
        await asyncio.sleep(0)
        bed.node.hears.set()
        assert await forgetting == []
        assert bed.node.promised == ["a"]
        assert bed.queue.is_promised("a")

    _run(test)


def test_all_that_a_node_was_promised_is_taken_back() -> None:
    async def test() -> None:
        bed = _Bed([_record("a")])
        await bed.settle()
        bed.node.promised.append("of an earlier gateway")
        await bed.call_pipeline.take_all_back("n")
        assert bed.node.promised == []
        assert not bed.queue.is_promised("a")

    _run(test)
