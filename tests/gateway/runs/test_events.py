"""The tail of encoded events: forwarded as they came, cut where a client already is, bounded."""

from __future__ import annotations

from jupyter_gpu_release.gateway.runs.events import TAIL_BYTES, Batch, EventTail, RawReport, batches_of
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.node import AttemptId, NodeReport, RunEvents
from jupyter_gpu_release.protocol.session import Events, GatewayMessage
from jupyter_gpu_release.protocol.wire import decode, encode


def events(first: int, last: int, text: str = "x") -> list[Event]:
    return [Event(n, float(n), "stream", {"name": "stdout", "text": text}) for n in range(first, last + 1)]


def reported(found: list[Event]) -> list[object]:
    """As they arrive from a node: through a report that is only half decoded."""
    report = decode(encode(NodeReport("node", "life", [RunEvents(AttemptId("r", 0), found)])), RawReport)
    return report.messages[0].events


def read(batches: list[Batch] | None) -> list[Event]:
    assert batches is not None
    found: list[Event] = []
    for batch in batches:
        message = decode(batch.message, GatewayMessage)
        assert isinstance(message, Events)
        assert (message.run, message.events[0].n, message.events[-1].n) == ("r", batch.first, batch.last)
        found += message.events
    return found


def test_events_pass_through_unchanged() -> None:
    tail = EventTail("r")
    tail.add(reported(events(1, 5)))
    tail.add(reported(events(6, 6)))
    assert read(tail.after(0)) == events(1, 6)
    assert read(tail.after(3)) == events(4, 6)
    assert read(tail.after(5)) == events(6, 6)
    assert tail.after(6) == []


def test_repeated_reports_change_nothing() -> None:
    tail = EventTail("r")
    for first, last in ((1, 4), (1, 4), (2, 6), (6, 6), (5, 8)):
        assert tail.add(reported(events(first, last)))
    assert read(tail.after(0)) == events(1, 8)
    assert tail.last == 8


def test_after_a_gap_the_log_must_be_read() -> None:
    tail = EventTail("r")
    tail.add(reported(events(1, 3)))
    assert not tail.add(reported(events(6, 7)))
    assert tail.last == 7
    assert tail.after(3) is None
    assert tail.after(7) == []
    assert tail.add(reported(events(8, 9)))
    assert read(tail.after(7)) == events(8, 9)


def test_memory_is_bounded() -> None:
    tail = EventTail("r")
    text = "x" * 10_000
    for n in range(1, 1000):
        tail.add(reported(events(n, n, text)))
    kept = tail.after(998)
    assert read(kept) == events(999, 999, text)
    assert tail.after(0) is None
    oldest = next(n for n in range(999) if tail.after(n) is not None)
    assert sum(len(batch.message) for batch in tail.after(oldest) or []) <= TAIL_BYTES


def test_one_event_larger_than_the_bound_is_kept() -> None:
    tail = EventTail("r")
    large = events(1, 1, "x" * (TAIL_BYTES + 1))
    tail.add(reported(large))
    assert read(tail.after(0)) == large


def test_a_log_is_read_in_bounded_messages() -> None:
    batches = batches_of("r", events(5, 2504), 4)
    assert [batch.last - batch.first + 1 for batch in batches] == [1000, 1000, 500]
    assert read(batches) == events(5, 2504)
    assert batches_of("r", [], 4) == []


def test_holes_in_a_log_are_filled_and_said() -> None:
    found = read(batches_of("r", [*events(3, 4), *events(8, 8)], 0))
    assert [event.n for event in found] == list(range(1, 9))
    notes = [event.data["text"] for event in found if event.kind == "note"]
    assert notes == ["2 pieces of output were not recorded", "3 pieces of output were not recorded"]
