"""A run that Ray did not grant keeps its place."""

from __future__ import annotations

from dataclasses import replace
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
        found = queue.successor(lease)
        assert found is first  # nobody is overtaken
        assert (found.series == ended.series) is follows
        assert queue.has_more_of(ended)
    assert not queue.has_more_of(run("a cell", 0, ""))


def test_calls_are_promised_up_to_the_first_run_of_another_kind() -> None:
    """And one that is promised is not granted anything before its node has given it back."""
    node = NodeState("n", "host", 4, 0, 8, 8)
    leases: Any = [SimpleNamespace(slots=(Slot("n", 1, 0),)) for _ in range(3)]
    granted: list[str] = []
    asked_back: list[str] = []

    def run(name: str, ordinal: int, series: str, gpus: int = 1) -> RunRecord:
        view = RunView(name, "ann", "queued", position=ordinal, session="s")
        return RunRecord(view, ordinal, RunRequest(name, "s", ResourceAsk(gpus=gpus), b"", series=series))

    def queue_of(*records: RunRecord, gpus_free: int = 0) -> RunQueue:
        queue = RunQueue(
            SimpleNamespace(change=lambda *_, **__: None, move=lambda *_: None),
            SimpleNamespace(states=lambda _: (replace(node, gpus_free=gpus_free),)),
            SimpleNamespace(warm=list), lambda record, _: granted.append(record.run), lambda *_: None, lambda *_: None,
        )  # fmt: skip
        queue.open()
        for record in records:
            queue.add(record)
        return queue

    ours = [run(f"f{n}", n, "f") for n in range(1, 5)]
    series = ours[0].series
    assert queue_of(*ours).followers(leases, series) == [(r, "n") for r in ours[:3]]
    other = run("g", 2, "g")
    assert queue_of(ours[0], other, *ours[2:]).followers(leases, series) == [(ours[0], "n")]
    assert queue_of(other, *ours[2:]).followers(leases, series) == []
    large = run("large", 2, "f", gpus=2)
    assert queue_of(ours[0], large, *ours[2:]).followers(leases, series) == [(ours[0], "n")]

    nodes = [NodeState(name, "host", 2, 0, 8, 8) for name in ("n", "m")]
    spread: Any = [SimpleNamespace(slots=(Slot(n.node, 1, 0),)) for n in nodes for _ in range(2)]
    queue = queue_of(*ours)
    queue._nodes = SimpleNamespace(states=lambda _: tuple(nodes))
    assert sorted(where for _, where in queue.followers(spread, series)) == ["m", "m", "n", "n"]

    queue = queue_of(*ours, gpus_free=2)
    queue.is_promised = {"f1"}.__contains__
    queue.on_promised = lambda record: asked_back.append(record.run)
    queue.serve()
    assert (granted, asked_back) == (["f2"], ["f1"])
    assert "f1" in queue
