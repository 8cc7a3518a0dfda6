"""A run that Ray did not grant keeps its place."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from broker_bed import until

from jupyter_gpu_release.gateway.dispatch.queue import RunQueue
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.scheduling.snapshot import NodeState, Slot


@pytest.mark.asyncio
async def test_nobody_overtakes_a_run_that_is_put_back() -> None:
    granted: list[str] = []

    def on_grant(record: RunRecord, _grant: Any) -> None:
        granted.append(record.run)

    def run(name: str, ordinal: int) -> RunRecord:
        view = RunView(name, "ann", "queued", position=ordinal)
        return RunRecord(view, ordinal, RunRequest(name, "s", ResourceAsk(gpus=3), b""))

    def queue_on(gpus_free: int) -> RunQueue:
        node = NodeState("n", "host", 8, gpus_free, 8, 8)
        queue = RunQueue(
            SimpleNamespace(change=lambda *_, **__: None, move=lambda *_: None),
            SimpleNamespace(states=lambda _: (node,)),
            SimpleNamespace(warm=list), on_grant, lambda *_: None, lambda *_: None,
        )  # fmt: skip
        queue.open()
        for name, ordinal in (("second", 2), ("third", 3)):
            queue.add(run(name, ordinal))
        return queue

    first = run("first", 1)
    queue = queue_on(3)
    queue.put_back(first)
    queue.serve()
    assert not granted
    queue.resume(first)
    await until(lambda: granted == ["first"])

    granted.clear()
    queue = queue_on(6)
    queue.put_back(first)
    queue.serve()
    assert granted == ["second"]  # what is left beyond the first one's is nobody's loss

    queue = queue_on(0)
    queue.put_back(first)
    assert queue.successor(SimpleNamespace(slots=(Slot("n", 3, 0),))) is None
    queue.remove(first)
    found = queue.successor(SimpleNamespace(slots=(Slot("n", 3, 0),)))
    assert found is not None
    assert found.run == "second"


@pytest.mark.asyncio
async def test_what_happens_close_together_is_decided_together() -> None:
    passes: list[int] = []
    view = RunView("waits", "ann", "queued", position=1)
    waits = RunRecord(view, 1, RunRequest("waits", "s", ResourceAsk(gpus=3), b""))
    node = NodeState("n", "host", 8, 0, 8, 8)

    def states(_: Any) -> tuple[NodeState, ...]:
        passes.append(1)
        return (node,)

    queue = RunQueue(
        SimpleNamespace(change=lambda *_, **__: None, move=lambda *_: None), SimpleNamespace(states=states),
        SimpleNamespace(warm=list), lambda *_: None, lambda *_: None, lambda *_: None,
    )  # fmt: skip
    queue.open()
    queue.add(waits)
    for _ in range(50):
        queue.serve()
    before = len(passes)
    assert 1 <= before < 25, "the first is decided at once, the others wait a moment"
    await until(lambda: len(passes) > before)


@pytest.mark.asyncio
async def test_a_change_of_places_in_the_pause_after_a_long_decision_is_decided_after_it() -> None:
    passes: list[int] = []
    view = RunView("waits", "ann", "queued", position=1)
    waits = RunRecord(view, 1, RunRequest("waits", "s", ResourceAsk(gpus=3), b""))

    def states(_: Any) -> tuple[NodeState, ...]:
        passes.append(1)
        time.sleep(0.04)  # as long as a decision about thousands takes
        return (NodeState("n", "host", 8, 0, 8, 8),)

    queue = RunQueue(
        SimpleNamespace(change=lambda *_, **__: None, move=lambda *_: None), SimpleNamespace(states=states),
        SimpleNamespace(warm=list), lambda *_: None, lambda *_: None, lambda *_: None,
    )  # fmt: skip
    queue.open()
    queue.add(waits)
    queue.serve()
    before = len(passes)
    queue.serve_soon()
    await until(lambda: len(passes) > before)
    before = len(passes)
    queue.serve()
    await until(lambda: len(passes) > before)
