"""Feeds: events once each and in order, views that only get newer, interrupts that lose nothing."""

from __future__ import annotations

import _thread
import signal
import threading
import time

import pytest

from jupyter_gpu_release.client.feed import FeedTable, RunFeed
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.protocol.session import Accepted, Events, Refused, Update

RUN = "20260101-000000-00000000"


class Asked:
    def __init__(self) -> None:
        self.after: list[int] = []

    def __call__(self, run: str, after: int) -> None:
        assert run == RUN
        self.after.append(after)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def feed(asked: Asked) -> RunFeed:
    return RunFeed(RUN, RunRequest(RUN, "s", ResourceAsk(), b""), 0, asked)


def events(first: int, last: int) -> Events:
    return Events(RUN, [Event(n, 0.0, "stream", {}) for n in range(first, last + 1)])


def view(seq: int, state: str = "running") -> RunView:
    return RunView(RUN, "u", state, seq=seq)


def drain(feed: RunFeed) -> list[object]:
    found = []
    while (item := feed.next_item(0)) is not None:
        found.append(item)
    return found


def numbers(feed: RunFeed) -> list[int]:
    return [event.n for item in drain(feed) for event in item.events]


def test_events_in_order(feed: RunFeed, asked: Asked) -> None:
    for batch in (events(1, 3), events(4, 4), events(5, 9)):
        feed.on_events(batch)
    assert numbers(feed) == list(range(1, 10))
    assert asked.after == []


def test_repeated_and_overlapping_batches(feed: RunFeed, asked: Asked) -> None:
    for batch in (events(1, 5), events(1, 5), events(3, 8), events(8, 8), events(8, 10), Events(RUN, [])):
        feed.on_events(batch)
    assert numbers(feed) == list(range(1, 11))
    assert asked.after == []


def test_a_gap_is_asked_for_once_and_filled(feed: RunFeed, asked: Asked) -> None:
    feed.on_events(events(1, 2))
    feed.on_events(events(5, 6))
    feed.on_events(events(7, 8))
    assert asked.after == [2]
    feed.on_events(events(3, 8))
    assert numbers(feed) == list(range(1, 9))
    feed.on_events(events(10, 10))
    assert asked.after == [2, 8]


def test_a_gap_is_asked_for_again_on_a_new_connection(feed: RunFeed, asked: Asked) -> None:
    feed.on_events(events(3, 4))
    feed.on_reconnect()
    feed.on_events(events(3, 4))
    assert asked.after == [0, 0]


def test_older_views_are_dropped(feed: RunFeed) -> None:
    feed.on_accepted(Accepted(view(1, "queued")))
    for seq in (3, 2, 3, 4):
        feed.on_update(Update(view(seq)))
    assert [item.view.seq for item in drain(feed)] == [1, 3, 4]


def test_the_view_meant_for_another_feed_does_not_overtake_this_ones_events(asked: Asked) -> None:
    late = RunFeed(RUN, None, 0, asked)
    end = Update(view(3, "succeeded"), after_event=2)
    late.on_update(end)
    assert not late.ended
    late.on_events(events(1, 2))
    late.on_update(end)
    assert late.ended
    assert [type(item) for item in drain(late)] == [Events, Update]


def test_a_second_acknowledgement_is_no_second_accepted(feed: RunFeed) -> None:
    feed.on_accepted(Accepted(view(1, "queued")))
    feed.on_accepted(Accepted(view(1, "queued")))
    feed.on_accepted(Accepted(view(2)))
    assert [type(item) for item in drain(feed)] == [Accepted, Update]
    assert feed.request is None


@pytest.mark.parametrize(
    "end", [Accepted(view(2, "cancelled")), Update(view(2, "succeeded")), Refused(RUN, "impossible_ask", "no")]
)
def test_the_end(feed: RunFeed, end: Accepted | Update | Refused) -> None:
    feed.on_message(end)
    assert (feed.ended, feed.request) == (True, None), "the request is not sent again"
    assert feed.next_item(0) == end


def test_what_is_resumed_is_what_all_feeds_of_a_run_have(feed: RunFeed, asked: Asked) -> None:
    feeds, early, late = FeedTable(), RunFeed(RUN, None, 3, asked), RunFeed(RUN, None, 7, asked)
    for each in (early, late, feed):  # the last one's request is not taken yet
        feeds.add_feed(each)
    assert feeds.resume() == {RUN: 3}
    feeds.drop_feed(early)
    assert feeds.resume() == {RUN: 7}
    feed.on_update(Update(view(1)))
    assert not feed.ended


def test_get_waits_no_longer_than_asked(feed: RunFeed) -> None:
    started = time.monotonic()
    assert feed.next_item(0.05) is None
    assert time.monotonic() - started > 0.04  # longer: the suite's time limit


def test_get_wakes_up(feed: RunFeed) -> None:
    thread = threading.Timer(0.05, lambda: feed.on_events(events(1, 1)))
    thread.start()
    assert feed.next_item(10) == events(1, 1)
    thread.join()


def test_interrupts_lose_nothing(feed: RunFeed) -> None:
    """A producer and a storm of KeyboardInterrupts; every event must come once and in order."""
    last = 3000
    over, interrupted = threading.Event(), threading.Event()
    armed: list[bool] = []

    def strike(*_: object) -> None:
        if armed:  # once: another one in the handler below would end all tests
            armed.clear()
            raise KeyboardInterrupt

    def produce() -> None:
        for n in range(1, last + 1):
            feed.on_events(events(n, n))
            if n == last // 2:  # on a busy machine all could be over before the first one
                interrupted.wait(60)
            if n % 20 == 0:
                over.wait(0.001)  # so that the consumer waits now and then
        over.set()

    def interrupt() -> None:
        while not over.wait(0.0007):
            _thread.interrupt_main()

    threads = [threading.Thread(target=produce), threading.Thread(target=interrupt)]
    got: list[object] = []
    interrupts = 0
    started = False
    before = signal.signal(signal.SIGINT, strike)
    while not (got and got[-1].events[-1].n == last):
        try:
            armed.append(True)
            if not started:
                started = True
                for thread in threads:
                    thread.start()
            while True:
                # list.extend takes the item in the same step in which get returns it
                got.extend(iter(lambda: feed.next_item(0.2), None))
                if over.is_set():
                    break
            armed.clear()
        except KeyboardInterrupt:
            interrupts += 1
            interrupted.set()
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGINT, before)
    assert interrupts > 0
    assert [item.events[0].n for item in got] == list(range(1, last + 1))
