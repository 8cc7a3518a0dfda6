"""Attempts: whether another follows, what is kept of those that are over, what comes home after the last."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.errors import ClusterError, RunLostError, StoreError
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.runs.attempts import (
    blamed_hosts,
    brought_home,
    ended_attempt,
    ended_by_cancel,
    failed_host,
    goes_on,
    save_of,
    time_left_s,
)
from jupyter_gpu_release.gateway.runs.outcomes import lost, unstarted
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import AttemptId
from jupyter_gpu_release.protocol.runs import (
    Attempt,
    ErrorInfo,
    Outcome,
    Preemption,
    ResourceAsk,
    RunRequest,
    RunView,
    Save,
    ValueInfo,
)
from jupyter_gpu_release.scheduling.decisions import Slot

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
        (unstarted(StoreError("the store is full")), asked(retries=1), (), True),
        (Outcome("error", ErrorInfo("StoreError", "full", code="store"), started_s=5.0), asked(retries=9), (), False),
        (lost("gone"), asked(retries=1), (LOST, msgspec.structs.replace(LOST, was_saved=True)), True),
        (lost("gone"), asked(retries=1), (LOST, Attempt(10.0, 20.0, 12.0)), True),
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


def test_an_attempt_that_was_lost_after_its_notice_is_told_as_lost() -> None:
    notice = Preemption("preempt", "bob's run goes first", 33.0, 93.0, "other", "bob")
    gone = ended_attempt(seen(notice=notice, gpu_name="H100"), lost("the node is gone"), 40.0, None)
    assert (gone.reason, gone.noticed_at, gone.gpu_name, gone.status) == ("the node is gone", 33.0, "H100", "lost")


def test_what_was_saved_and_why_it_ended_comes_home_with_all_that_was_said_of_it() -> None:
    said = Outcome("preempted", values=SAVE.values, notes=["lock was not returned"], save=SAVE)
    save = save_of(said)
    assert save is not None
    assert save.notes == ["lock was not returned"]
    home = brought_home(lost("the node is gone"), save)
    assert home.notes == ["lock was not returned", "the names are as they were saved before epoch 3"]
    early = brought_home(lost("the node is gone"), msgspec.structs.replace(SAVE, place=""))
    assert early.notes == ["the names are as they were saved"]
    cancelled = ended_by_cancel(said, "cancelled by bob")
    assert cancelled.error is not None
    assert (cancelled.status, cancelled.save, cancelled.error.evalue) == ("interrupted", None, "cancelled by bob")
    own = ErrorInfo("KeyboardInterrupt", "in the cell")
    assert ended_by_cancel(msgspec.structs.replace(said, error=own), "cancelled by bob").error is own


def test_an_attempt_whose_cell_never_began_costs_nothing_of_the_timeout() -> None:
    assert time_left_s(asked(timeout_s=60.0), seen(Attempt(10.0, 50.0, status="lost"))) == 60.0


def test_only_hosts_that_lost_an_attempt_are_avoided() -> None:
    aside = msgspec.structs.replace(ASIDE, hosts=["gpu2"])
    assert blamed_hosts(seen(LOST, aside)) == {"gpu1"}


@pytest.mark.parametrize(("rank", "host"), [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "a")])
def test_the_host_of_the_rank_that_failed_is_to_blame(rank: int, host: str) -> None:
    """Four ranks on two nodes; what comes after them (parameter servers) is where the leader is."""
    lease = Lease("lease", AttemptId("r", 0), (Slot("n", 2), Slot("m", 2)))
    ask = ResourceAsk(gpus=4, ranks=4, nodes=2)
    died = Outcome("lost", ErrorInfo("RunLostError", "gone", code="lost"), failed_rank=rank)
    assert failed_host(["a", "b"], ask, lease, died) == host
    slow = msgspec.structs.replace(died, error=ErrorInfo("GangIncomplete", "one has not joined", code="lost"))
    assert failed_host(["a", "b"], ask, lease, slow) == ""
