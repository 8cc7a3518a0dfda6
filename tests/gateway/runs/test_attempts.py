"""Attempts: whether another follows, what is kept of those that are over, what comes home after the last."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.errors import ClusterError, RunLostError
from jupyter_gpu_release.gateway.runs.attempts import brought_home, ended_attempt, goes_on, save_of, time_left_s
from jupyter_gpu_release.gateway.runs.outcomes import lost, unstarted
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import (
    Attempt,
    Outcome,
    Preemption,
    ResourceAsk,
    RunRequest,
    RunView,
    Save,
    ValueInfo,
)

LOST = Attempt(10.0, 20.0, 12.0, status="lost", hosts=["gpu1"])
ASIDE = Attempt(10.0, 20.0, 12.0, place="epoch 3", was_saved=True)
SAVE = Save(2, attempt=0, at_s=15.0, place="epoch 3", values=Graph(b"saved"), results=[ValueInfo("x", "int")])


def asked(**facts: object) -> RunRequest:
    return RunRequest("r", "s", ResourceAsk(), b"", **facts)


def seen(*attempts: Attempt, **facts: object) -> RunView:
    return RunView("r", "ann", "releasing", granted_at=30.0, running_at=32.0, attempts=list(attempts), **facts)


@pytest.mark.parametrize(
    ("outcome", "request_", "before", "answer"),
    [
        (Outcome("preempted"), asked(restartable=True), (), True),
        (Outcome("preempted"), asked(restartable=True), (ASIDE,) * 20, True),
        (lost("gone"), asked(), (), False),
        (lost("gone"), asked(retries=1), (), True),
        (lost("gone"), asked(retries=1), (LOST,), False),
        (lost("gone"), asked(retries=1), (LOST, ASIDE), True),
        (lost("gone"), asked(restartable=True), (LOST, LOST), True),
        (lost("gone"), asked(restartable=True), (LOST,) * 3, False),
        (unstarted(ClusterError("Ray is silent")), asked(retries=1), (), True),
        (unstarted(RunLostError("its start came to nothing")), asked(retries=1), (), True),
        (Outcome("error"), asked(retries=9, restartable=True), (), False),
        (Outcome("died"), asked(retries=9), (), False),
        (Outcome("memory"), asked(retries=9), (), False),
        (Outcome("hung"), asked(retries=9), (), False),
        (Outcome("timeout"), asked(retries=9), (), False),
        (Outcome("ok"), asked(retries=9), (), False),
    ],
)
def test_only_what_the_infrastructure_has_ended_goes_on(
    outcome: Outcome, request_: RunRequest, before: tuple[Attempt, ...], answer: bool
) -> None:
    assert goes_on(request_, seen(*before), outcome, "") is answer
    assert not goes_on(request_, seen(*before), outcome, "cancelled by ann")


def test_an_attempt_says_where_the_run_goes_on_and_what_is_done_again() -> None:
    notice = Preemption("preempt", "bob's run goes first", 33.0, 93.0, "other", "bob")
    saved = Outcome("preempted", values=SAVE.values, results=SAVE.results, ended_s=40.0, save=SAVE)
    save = save_of(msgspec.structs.replace(saved, save=msgspec.structs.replace(SAVE, values=None, results=[])))
    assert save == SAVE
    aside = ended_attempt(seen(hosts=["gpu1"], notice=notice), saved, 41.0, save)
    assert (aside.place, aside.user, aside.reason, aside.lost_s) == ("epoch 3", "bob", "bob's run goes first", 0.0)
    killed = ended_attempt(seen(notice=notice), Outcome("preempted", ended_s=40.0), 41.0, None)
    assert (killed.place, killed.was_saved, killed.lost_s) == ("", False, 8.0)
    in_this = msgspec.structs.replace(SAVE, attempt=1, at_s=38.5)
    gone = ended_attempt(seen(LOST), lost("the node is gone"), 40.0, in_this)
    assert (gone.reason, gone.was_saved, gone.lost_s) == ("the node is gone", True, 1.5)
    again = ended_attempt(seen(ASIDE), lost("the node is gone"), 40.0, SAVE)
    assert (again.place, again.was_saved, again.lost_s) == ("epoch 3", False, 8.0)


def test_timeout_counts_the_running_time_of_all_attempts() -> None:
    assert time_left_s(asked(timeout_s=60.0), seen()) == 60.0
    assert time_left_s(asked(timeout_s=60.0), seen(LOST, ASIDE)) == 44.0
    assert time_left_s(asked(timeout_s=10.0), seen(LOST, ASIDE)) == 1.0
    assert time_left_s(asked(), seen(LOST)) is None


def test_a_run_that_goes_on_no_more_brings_its_last_save_home_unless_it_has_something_newer() -> None:
    home = brought_home(lost("the node is gone"), SAVE)
    assert (home.values, home.results) == (SAVE.values, SAVE.results)
    assert home.notes == ["the names are as they were saved before epoch 3"]
    newer = Outcome("error", values=Graph(b"newer"))
    assert brought_home(newer, SAVE) is newer
    assert brought_home(lost("gone"), None).values is None
