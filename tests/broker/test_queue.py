"""A run that Ray did not grant keeps its place."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from jupyter_gpu_release.broker.queue import RunQueue
from jupyter_gpu_release.broker.runs import RunRecord
from jupyter_gpu_release.core.messages import RunRequest, RunView
from jupyter_gpu_release.core.resources import ResourceAsk
from jupyter_gpu_release.scheduling.snapshot import NodeState, Slot


def test_nobody_overtakes_a_run_that_is_put_back() -> None:
    node = NodeState("n", "host", 4, 0, 8, 8)
    granted: list[str] = []
    heard = asyncio.Event()

    def on_grant(record: RunRecord, _grant: Any) -> None:
        granted.append(record.run)
        heard.set()

    def run(name: str, ordinal: int) -> RunRecord:
        view = RunView(name, "ann", "queued", position=ordinal)
        return RunRecord(view, ordinal, RunRequest(name, "s", ResourceAsk(gpus=4), b""))

    async def story() -> None:
        queue = RunQueue(
            SimpleNamespace(change=lambda *_, **__: None), SimpleNamespace(states=lambda _: (node,)),
            SimpleNamespace(warm=list), on_grant, lambda *_: None, lambda *_: None,
        )  # fmt: skip
        queue.open()
        queue.add(run("second", 2))
        queue.put_back(run("first", 1), 0.2)
        freed = SimpleNamespace(slots=(Slot("n", 4, 0),))
        queue.serve()
        assert queue.successor(freed) is None
        assert not granted
        nonlocal node
        node = NodeState("n", "host", 4, 4, 8, 8)
        await asyncio.wait_for(heard.wait(), 30)

    asyncio.run(story())
    assert granted == ["first"]
