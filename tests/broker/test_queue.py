"""A run that Ray did not grant keeps its place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyter_gpu_release.broker.queue import RunQueue
from jupyter_gpu_release.broker.runs import RunRecord
from jupyter_gpu_release.core.messages import RunRequest, RunView
from jupyter_gpu_release.core.resources import ResourceAsk
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


def test_a_process_is_handed_on_within_one_series_only() -> None:
    """One function of one session of one user; and only where the policy's next run is such a call."""
    node = NodeState("n", "host", 1, 0, 8, 8)
    lease: Any = SimpleNamespace(slots=(Slot("n", 1, 0),))

    def run(name: str, ordinal: int, series: str, session: str = "s", user: str = "ann") -> RunRecord:
        view = RunView(name, user, "queued", position=ordinal, session=session)
        return RunRecord(view, ordinal, RunRequest(name, session, ResourceAsk(gpus=1), b"", series=series))

    ended = run("ended", 0, "f")
    for first, follows in (
        (run("same", 1, "f"), True),
        (run("other function", 1, "g"), False),
        (run("other session", 1, "f", session="t"), False),
        (run("other user", 1, "f", user="bob"), False),
        (run("a cell", 1, ""), False),
    ):
        queue = RunQueue(
            SimpleNamespace(change=lambda *_, **__: None), SimpleNamespace(states=lambda _: (node,)),
            SimpleNamespace(warm=list), lambda *_: None, lambda *_: None, lambda *_: None,
        )  # fmt: skip
        queue.open()
        queue.add(first)
        queue.add(run("behind", 2, "f"))
        found = queue.successor(lease, of_series=ended)
        assert (found.run if found is not None else None) == ("same" if follows else None)
        assert ("behind" in queue, first.run in queue) == (True, not follows)  # nobody is overtaken
        assert queue.has_more_of(ended)
    assert not queue.has_more_of(run("a cell", 0, ""))
