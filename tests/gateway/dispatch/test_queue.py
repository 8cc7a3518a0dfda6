"""A run that Ray did not grant keeps its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyter_gpu_release.gateway.dispatch.queue import RunQueue
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.scheduling.snapshot import NodeState, Slot


def test_nobody_overtakes_a_run_that_is_put_back() -> None:
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
    assert granted == ["first"]

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
