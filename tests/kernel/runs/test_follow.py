from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import pytest

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.feed import ConnectionBack, ConnectionLost, FeedItem, RunFeed
from jupyter_gpu_release.client.results import is_usable
from jupyter_gpu_release.errors import GatewayUnavailableError, NoSuchRunError, RunCancelledError, RunLostError
from jupyter_gpu_release.kernel.output.cell_output import SilentOutput
from jupyter_gpu_release.kernel.runs import follow
from jupyter_gpu_release.kernel.runs.follow import FollowMode, RunFollower
from jupyter_gpu_release.presentation.run_display import describe_run
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import Outcome, RunView
from jupyter_gpu_release.protocol.session import Refused, Update


def view(state: str, **facts: object) -> RunView:
    return RunView(run="r", user="u", state=state, simulated=True, **facts)


INLINE, FILE = Outcome("ok", values=Graph(stream=b"x")), Outcome("ok", values=Graph(file="values.graph"))


@pytest.mark.parametrize(
    ("seen", "usable"),
    [
        (view("running"), False),
        (view("releasing", outcome=INLINE), False),
        (view("persisting", gone_at=1.0, outcome=INLINE), True),
        (view("persisting", gone_at=1.0, outcome=Outcome("error")), True),
        (view("persisting", gone_at=1.0, outcome=FILE), False),
        (view("persisting", gone_at=1.0), False),
        (view("succeeded", gone_at=1.0, outcome=FILE), True),
        (view("cancelled"), True),
        (view("lost"), True),
    ],
)
def test_a_cell_returns_when_its_names_are_usable_and_its_lease_is_gone(seen: RunView, usable: bool):
    assert is_usable(seen) is usable


@pytest.mark.parametrize(("interrupts", "kind"), [(0, RunCancelledError), (1, KeyboardInterrupt)])
def test_an_interrupt_that_ended_the_wait_for_a_node_is_the_cells_end(interrupts: int, kind: type[BaseException]):
    feed = RunFeed("r", None, 0, lambda run, after: None)
    feed.put_item(Refused("r", RunCancelledError.code, "interrupted before it was queued: no node agent is up", ""))
    dropped: list[RunFeed] = []
    session = SimpleNamespace(welcome=None, drop_feed=dropped.append, signal=lambda run, signal: None)
    output = SilentOutput(SimpleNamespace())
    following = RunFollower(output, session, feed, SimpleNamespace(count=interrupts))  # type: ignore[arg-type]
    with pytest.raises(RunCancelledError) as refused:
        following.until_accepted()
    assert dropped == [feed]
    failure = following.failure(refused.value)
    assert type(failure) is kind
    assert "no node agent is up" in str(failure)


def follower(feed: RunFeed, told: list[str], manner: FollowMode, interrupts: int = 0) -> RunFollower:
    session = SimpleNamespace(
        welcome=None,
        target=Target("http://127.0.0.1:9", "t", configured=True),
        drop_feed=lambda feed: None,
        signal=lambda run, signal: told.append(signal),
    )
    output, count = SilentOutput(SimpleNamespace()), SimpleNamespace(count=interrupts)
    return RunFollower(output, session, feed, count, manner)  # type: ignore[arg-type]


@pytest.mark.parametrize(("leaves", "signals"), [(False, ["interrupt", "kill"]), (True, [])])
def test_the_second_interrupt_kills_unless_one_only_looks_on(leaves: bool, signals: list[str]):
    feed, told = RunFeed("r", None, 0, lambda run, after: None), list[str]()
    for state in ("running", "cancelled"):
        feed.put_item(Update(view(state)))
    ended = follower(feed, told, FollowMode(leaves=leaves), interrupts=2).until_usable()
    assert (told, ended.state) == (signals, "running" if leaves else "cancelled")


def test_a_run_that_the_gateway_has_forgotten_is_lost():
    feed = RunFeed("r", None, 0, lambda run, after: None)
    feed.put_item(Update(view("running")))
    feed.put_item(Refused("r", NoSuchRunError.code, "there is no such run", ""))
    with pytest.raises(RunLostError, match="there is no such run"):
        follower(feed, [], FollowMode()).until_usable()


def test_an_interrupt_while_results_are_written_ends_the_wait_and_not_the_run():
    feed, told = RunFeed("r", None, 0, lambda run, after: None), list[str]()
    feed.put_item(Update(view("persisting", gone_at=1.0, outcome=FILE)))
    feed.put_item(Update(view("succeeded", gone_at=1.0, outcome=FILE)))
    ended = follower(feed, told, FollowMode(), interrupts=1).until_usable()
    assert (told, ended.state) == ([], "persisting")


AWAY = ConnectionLost(GatewayUnavailableError("away"))


def test_without_contact_the_second_interrupt_ends_any_wait():
    feed = RunFeed("r", None, 0, lambda run, after: None)
    for item in (Update(view("running")), AWAY, Update(view("cancelled"))):
        feed.put_item(item)
    assert follower(feed, [], FollowMode(patient=True), interrupts=2).until_usable().state == "running"


@pytest.mark.parametrize(
    ("items", "gives_up"),
    [
        ([AWAY] * 4, True),
        ([AWAY, ConnectionBack(), AWAY, ConnectionBack()], False),
        ([AWAY, Update(view("running"))] * 2, False),
        ([ConnectionLost(GatewayUnavailableError("ended"), final=True)], True),
    ],
)
def test_a_gateway_is_given_up_after_a_minute_without_a_word_from_it(
    items: list[FeedItem], gives_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0.0, 25.0)
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    feed = RunFeed("r", None, 0, lambda run, after: None)
    for item in [*items, Update(view("cancelled"))]:
        feed.put_item(item)
    with pytest.raises(GatewayUnavailableError) if gives_up else contextlib.nullcontext():
        assert follower(feed, [], FollowMode()).until_usable().state == "cancelled"


@pytest.mark.parametrize("patient", [False, True])
def test_only_a_cell_gives_a_silent_gateway_up(patient: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(follow, "_GIVE_UP_S", -1.0)
    feed = RunFeed("r", None, 0, lambda run, after: None)
    feed.put_item(ConnectionLost(GatewayUnavailableError("away")))
    feed.put_item(Update(view("cancelled")))
    following = follower(feed, [], FollowMode(patient=patient))
    with contextlib.nullcontext() if patient else pytest.raises(GatewayUnavailableError, match="may still go on"):
        assert following.until_usable().state == "cancelled"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (view("submitted"), "queued for 1 simulated GPU"),
        (
            view("queued", gpus=2, position=3, reason="1 of 2 free"),
            "queued for 2 simulated GPUs · place 3 · 1 of 2 free",
        ),
        (view("starting", hosts=["a"]), "starting · 1 simulated GPU"),
        (
            view("running", hosts=["a", "b"], gpu_ids=["0", "3"], gpus=2),
            "running on a, b · 2 simulated GPUs · GPU 0, 3",
        ),
        (view("running", hosts=["a"], gpus=0), "running on a · no GPU"),
        (view("releasing", hosts=["a"]), "releasing on a · 1 simulated GPU"),
        (
            view("queued", gpus=0, position=1, reason="needs 16 CPUs, 4 free"),
            "queued for CPU cores · place 1 · needs 16 CPUs, 4 free",
        ),
        (view("persisting", gone_at=1.0, gpus=0), "persisting · CPU cores free again · writing the results …"),
        (view("persisting", gone_at=1.0), "persisting · 1 simulated GPU free again · writing the results …"),
    ],
)
def test_states_in_words(seen: RunView, words: str):
    assert describe_run(seen) == words
