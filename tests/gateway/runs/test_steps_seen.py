"""Steps of a run's life as its user, the ledger and the nodes see them, one event after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.runs.machine import (
    Accepted,
    Ask,
    Cancel,
    Commit,
    Effect,
    EndLease,
    Enqueue,
    Event,
    Finish,
    Forgotten,
    Found,
    GiveBack,
    GoBack,
    Granted,
    Heard,
    LeaseGone,
    Lost,
    NoticeDue,
    NoticeHeard,
    Preempt,
    SendSignal,
    Silent,
    StartFailed,
    Stays,
    TellNotice,
    WaitAgain,
    Warned,
    step,
    unwanted,
    why_not_preempted,
)
from jupyter_gpu_release.gateway.runs.record import (
    Cancellation,
    Ended,
    Persisting,
    Preempting,
    Queued,
    Releasing,
    Running,
    RunSnapshot,
    Stage,
    Starting,
)
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import AttemptId, NodeRun, RunPhase, RunSaved, RunStays, RunUnbegun, RunWaits
from jupyter_gpu_release.protocol.runs import (
    Attempt,
    Outcome,
    PersistWait,
    Preemption,
    ResourceAsk,
    RunRequest,
    RunView,
    Save,
    ValueInfo,
)
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.scheduling.decisions import Slot

_ID = AttemptId("r", 0)
_LEASE = Lease("lease", _ID, (Slot("n", 2),))
_NOTICE = Preemption("preempt", "bob's run goes first", 10.0, 50.0, "other")
_WAIT = PersistWait("values.graph", 9, "disk full")


def _run(stage: Stage, ask: ResourceAsk | None = None, *, retries: int = 0, **facts: Any) -> RunSnapshot:
    shown = {name: facts.pop(name) for name in list(facts) if name in RunView.__struct_fields__}
    view = RunView("r", "ann", stage.state.word, **{"hosts": ["h"], "gpu_ids": ["0"], "submitted_at": 1.0, **shown})
    asked = RunRequest("r", "s", ask or ResourceAsk(2), b"cell", restartable=view.restartable, retries=retries)
    return RunSnapshot(view, asked, stage, **facts)


def _after(run: RunSnapshot, *events: Event, now_s: float = 60.0) -> tuple[RunSnapshot, list[Effect]]:
    """The run after these events, with the effects of all."""
    effects: list[Effect] = []
    for event in events:
        run, following = step(run, event, now_s)
        effects += following
    return run, effects


def _signals(effects: list[Effect]) -> list[str]:
    return [effect.name for effect in effects if isinstance(effect, SendSignal)]


# ------------------------------------------------------------------------------------------- the beginning
def test_a_run_that_begins_has_no_place_in_the_queue_and_did_not_begin_before_it_was_sent() -> None:
    begun, _ = _after(_run(Queued(), position=3, reason="2 GPUs are missing"), Granted(_LEASE, {}), now_s=0.5)
    assert (begun.view.position, begun.view.reason, begun.view.granted_at) == (None, "", 1.0)


def test_an_interrupt_that_came_too_early_for_its_node_is_sent_once_when_that_has_the_order() -> None:
    early, sent = _after(_run(Starting(_LEASE)), Cancel("cancelled by ann"))
    assert _signals(sent) == []
    ordered, sent = _after(early, Accepted(_ID))
    assert (_signals(sent), ordered.request.payload) == (["interrupt"], b"")
    assert _signals(_after(ordered, RunPhase(_ID, "running", 7.0), Accepted(_ID), Heard("n"))[1]) == []
    unheard, sent = _after(early, Heard("n"))
    assert _signals(sent) == [], "its node does not know it yet"
    assert unheard.cancellation.unsent == "interrupt"


def test_a_run_that_was_cancelled_is_not_begun_again_when_its_start_fails() -> None:
    for event in (StartFailed(_ID, ClusterError("away")), Forgotten(_ID, "again", "lost")):
        starting = _run(Starting(_LEASE, is_accepted=True), cancellation=Cancellation("cancelled by ann", 1))
        ends, effects = _after(starting, event)
        assert ends.view.state == "releasing"
        assert [effect for effect in effects if isinstance(effect, Ask | WaitAgain)] == []
    assert ends.outcome is not None
    ended, _ = _after(_run(Starting(_LEASE), cancellation=Cancellation("by ann")), StartFailed(_ID, ClusterError("x")))
    assert ended.outcome is not None
    assert ended.outcome.status == "interrupted"


def test_an_agent_that_dies_at_each_start_has_the_run_lost_in_the_end() -> None:
    run, times = _run(Starting(_LEASE, is_accepted=True)), 0
    while isinstance(run.stage, Starting):
        run, _ = _after(run, Forgotten(_ID, "again", "its agent died", has_begun=False))
        if isinstance(run.stage, Queued):
            times += 1
            run, _ = _after(run, Granted(_LEASE, {}))
            run, _ = _after(run, Accepted(run.attempt_id))
            run = replace(run, view=msgspec.structs.replace(run.view, vain_starts=0))
        assert times < 10
    assert times == 3
    assert run.outcome is not None
    assert run.outcome.status == "lost"


def test_a_run_that_waits_again_was_not_granted_and_hears_of_its_next_silent_node() -> None:
    silent = _run(Starting(_LEASE, is_accepted=True), granted_at=5.0, silent_node="n")
    again, effects = _after(silent, Forgotten(_ID, "again", "lost", has_begun=False))
    assert (again.view.granted_at, again.silent_node, again.view.reason) == (None, "", "again")
    assert effects == [Commit(), WaitAgain(_LEASE, until_store=False)]
    away, effects = _after(_run(Starting(_LEASE)), StartFailed(_ID, ClusterError("x"), False, False, "", True))
    assert WaitAgain(_LEASE, until_store=True) in effects
    assert away.view.vain_starts == 1


def test_a_leader_that_forgot_a_gang_before_all_nodes_answered_is_asked_when_they_have() -> None:
    forgotten, effects = _after(_run(Starting(_LEASE)), RunUnbegun(_ID, "a rank did not come"))
    assert effects == []
    _, effects = _after(forgotten, Accepted(_ID))
    assert effects == [Ask(Forgotten(_ID, "a rank did not come", "a rank did not come"))]


# --------------------------------------------------------------------------------------------- while it runs
def test_the_user_is_told_of_the_first_silent_node_until_that_answers() -> None:
    told, _ = _after(_run(Running(_LEASE)), Silent("n", "n is away"), Silent("m", "m is away"), Heard("m"))
    assert told.view.reason == "n is away"
    heard, _ = _after(told, Heard("n"))
    assert heard.view.reason == ""
    again, _ = _after(heard, Silent("m", "m is away"))
    assert again.view.reason == "m is away"
    over, _ = _after(_run(Persisting(Outcome("ok")), silent_node="n", reason="cancelled by ann"), Heard("n"))
    assert over.view.reason == "cancelled by ann"


def test_a_warning_never_hides_that_a_node_is_silent() -> None:
    warned, _ = _after(_run(Running(_LEASE)), Warned("n ends at 14:20"))
    assert warned.view.reason == "n ends at 14:20"
    assert _after(warned, Warned("n ends at 14:20"))[0] is warned
    assert _after(warned, Warned(""))[0].view.reason == ""
    assert _after(warned, Silent("n", "n is away"), Warned("n ends at 14:20"))[0].view.reason == "n is away"


def test_a_save_counts_once_and_not_after_the_end_or_of_another_attempt() -> None:
    saves = [Save(2, at_s=7.0), Save(2, at_s=8.0), Save(1, at_s=9.0), Save(3, attempt=1, at_s=9.0)]
    saved, effects = _after(_run(Running(_LEASE), restartable=True), *(RunSaved(_ID, save) for save in saves))
    assert [effect for effect in effects if isinstance(effect, Commit)] == [Commit(save=saves[0])]
    assert saved.view.saved_at == 7.0
    over, _ = _after(_run(Ended(RunState.SUCCEEDED, Outcome("ok"))), RunSaved(_ID, saves[0]))
    assert over.save is None


def test_an_elastic_run_that_keeps_its_size_is_asked_to_grow_no_more() -> None:
    elastic = _run(Running(_LEASE), ResourceAsk(4, ranks=4, min_gpus=2), gpus=2, ranks=2, most_gpus=4)
    stays, effects = _after(elastic, RunStays(_ID, "", of_size=True))
    assert (stays.view.most_gpus, stays.request.ask.min_gpus, stays.request.ask.gpus) == (0, None, 2)
    assert effects == [Commit()]


# --------------------------------------------------------------------------------------------- preemption
def test_who_may_be_preempted() -> None:
    may = _run(Running(_LEASE), restartable=True)
    assert why_not_preempted(may) is None
    assert why_not_preempted(_run(Preempting(_LEASE, _NOTICE), restartable=True)) is None, "it is, already"
    for run, words in (
        (_run(Running(_LEASE)), "it is not restartable"),
        (_run(Running(_LEASE), restartable=True, stays="it has a socket"), "it has a socket"),
        (_run(Queued(), restartable=True), "does not run now"),
        (_run(Running(None), restartable=True), "does not run now"),
    ):
        error = why_not_preempted(run)
        assert error is not None
        assert words in error.message


def test_a_preemption_is_known_to_the_next_gateway_and_its_node_hears_it_until_it_answers() -> None:
    run, effects = _after(_run(Running(_LEASE), restartable=True), Preempt(_NOTICE, "bob's run goes first"))
    assert Commit() in effects
    assert (run.view.state, run.view.notice, run.view.reason) == ("yielding", _NOTICE, "bob's run goes first")
    due = NoticeDue(_ID, is_needed=True)
    _, effects = _after(run, due, due, NoticeHeard(_ID, None), due, NoticeHeard(_ID, True), due, due, now_s=20.0)
    assert effects == [TellNotice(_LEASE), TellNotice(_LEASE)]
    assert _signals(_after(run, due, now_s=49.0)[1]) == []
    assert _signals(_after(run, due, now_s=50.0)[1]) == ["kill"]


def test_a_run_that_cannot_stop_any_more_goes_on_and_its_user_reads_why() -> None:
    preempts = _run(Preempting(_LEASE, _NOTICE), restartable=True, notice=_NOTICE, reason="bob's run goes first")
    goes_on, effects = _after(preempts, NoticeHeard(_ID, False), NoticeDue(_ID, is_needed=True), now_s=20.0)
    assert (goes_on.view.state, goes_on.view.notice) == ("running", None)
    assert goes_on.view.reason == "it was to be preempted, and cannot be now: it has no place to stop at any more"
    assert Stays(_NOTICE) in effects
    for_good, _ = _after(preempts, RunStays(_ID, "it has a socket"))
    assert (for_good.view.stays, for_good.view.reason, for_good.view.notice) == ("it has a socket", "", None)


def test_whoever_was_preempted_waits_as_if_it_had_never_run() -> None:
    last = Save(3, at_s=40.0, place="epoch 3")
    outcome = Outcome("preempted", save=last, values=Graph(b"x"), ended_s=41.0)
    was = _run(
        Releasing(_LEASE, outcome, is_final=True),
        restartable=True,
        save=Save(1, at_s=5.0),
        put_back=2,
        silent_node="n",
        cancellation=Cancellation(unsent="interrupt"),
        notice=_NOTICE,
        reason="bob's run goes first",
        granted_at=2.0,
        running_at=3.0,
        gpu_name="H100",
        on_kept=True,
        waits_for=_WAIT,
    )
    waits, effects = _after(was, LeaseGone(_ID, 42.0))
    view = waits.view
    assert (view.state, view.notice, view.reason, view.granted_at, view.running_at) == ("queued", None, "", None, None)
    assert (view.hosts, view.gpu_ids, view.gpu_name, view.on_kept, view.waits_for) == ([], [], "", False, None)
    assert (waits.put_back, waits.silent_node, waits.cancellation) == (0, "", Cancellation())
    assert waits.save is not None
    assert (waits.save.number, waits.save.values, view.saved_at) == (3, Graph(b"x"), 40.0)
    (past,) = view.attempts
    assert (past.gpu_name, past.hosts, past.running_at, past.gone_at) == ("H100", ["h"], 3.0, 42.0)
    assert [effect for effect in effects if isinstance(effect, GoBack)] == [GoBack(_ID, ["h"], after_others=False)]


def test_whoever_was_asked_by_a_person_waits_behind_the_others() -> None:
    asked = msgspec.structs.replace(_NOTICE, action="request")
    gone = _run(Releasing(_LEASE, Outcome("preempted"), is_final=True), restartable=True, notice=asked)
    _, effects = _after(gone, LeaseGone(_ID, 42.0))
    assert GoBack(_ID, ["h"], after_others=True) in effects


def test_a_preempted_run_that_is_cancelled_before_its_gpus_are_free_ends() -> None:
    leaves = _run(Releasing(_LEASE, Outcome("preempted"), is_final=True), restartable=True, save=Save(1))
    over, effects = _after(leaves, Cancel("cancelled by ann"), LeaseGone(_ID, 42.0))
    assert (over.view.state, over.view.reason) == ("cancelled", "cancelled by ann")
    assert Commit(is_home=True) in effects
    assert Finish(["h"]) in effects
    saves = _run(Persisting(Outcome("preempted"), gone_at=5.0), restartable=True, save=Save(1))
    over, _ = _after(saves, Cancel("cancelled by ann"), RunPhase(_ID, "final", 50.0))
    assert (over.view.state, over.view.gone_at) == ("cancelled", 5.0)


# ------------------------------------------------------------------------------------------------- its end
def test_a_cell_that_was_quick_has_begun_when_its_first_statement_did() -> None:
    quick, effects = _after(
        _run(Starting(_LEASE, is_accepted=True)), RunPhase(_ID, "released", 9.0, Outcome("ok", started_s=7.0))
    )
    assert quick.view.running_at == 7.0
    assert effects == [EndLease(_LEASE, is_clean=True)]


def test_results_that_wait_are_said_as_soon_as_the_gpus_are_free_and_no_longer_than_they_wait() -> None:
    leaves = _run(Releasing(_LEASE, Outcome("ok", ended_s=8.0)), notice=_NOTICE)
    persisting, _ = _after(leaves, RunWaits(_ID, _WAIT), LeaseGone(_ID, 9.0))
    assert (persisting.view.state, persisting.view.waits_for, persisting.view.gone_at) == ("persisting", _WAIT, 9.0)
    over, _ = _after(persisting, RunPhase(_ID, "final", 50.0, Outcome("ok")))
    assert (over.view.state, over.view.waits_for, over.view.notice) == ("succeeded", None, None)


def test_gpus_of_a_cluster_that_is_gone_were_free_when_it_went() -> None:
    gone, _ = _after(_run(Running(_LEASE)), Lost(_ID, "the cluster was started anew", at_s=5.0), LeaseGone(_ID, None))
    assert (gone.view.state, gone.view.gone_at, gone.view.finished_at) == ("lost", 5.0, 5.0)


@pytest.mark.parametrize(("has_values", "state"), [(True, "succeeded"), (False, "lost")])
def test_a_run_whose_node_is_gone_after_its_end_is_lost_only_with_its_results(has_values: bool, state: str) -> None:
    large = Outcome("ok", values=Graph(file="values.graph"), results=[ValueInfo("x", "array", 1 << 30)])
    asks, effects = _after(_run(Persisting(large)), Lost(_ID, "the node is gone"))
    assert effects == [Ask(Lost(_ID, "the node is gone"))]
    over, _ = _after(asks, Lost(_ID, "the node is gone", has_values=has_values))
    assert over.view.state == state


# ------------------------------------------------------------------------------------- the gateway's next life
def test_what_was_cancelled_while_the_nodes_were_asked_keeps_no_gpus() -> None:
    over = _run(Ended(RunState.CANCELLED, Outcome("interrupted")))
    assert GiveBack(_LEASE) in _after(over, Found(_ID, _LEASE, ["h"], ["0"], ""))[1]


@pytest.mark.parametrize(
    ("detached", "restartable", "retries", "waits"),
    [(True, True, 0, True), (True, False, 2, True), (True, False, 0, False), (False, True, 2, False)],
)
def test_on_a_new_cluster_only_what_nobody_sits_before_and_may_begin_again_waits(
    detached: bool, restartable: bool, retries: int, waits: bool
) -> None:
    queued = _run(Queued(), retries=retries, detached=detached, restartable=restartable)
    found, effects = _after(queued, Found(_ID, None, [], [], "", is_fresh=True))
    assert (effects == [Enqueue()]) is waits
    assert (found.view.state == "lost") is not waits


def test_a_detached_run_of_a_cluster_that_is_gone_goes_on_from_its_save_and_one_of_a_kernel_does_not() -> None:
    fresh = Found(_ID, None, [], [], "", is_fresh=True, gone_at=5.0)
    for detached, state in ((True, "queued"), (False, "lost")):
        runs = _run(Running(None), detached=detached, restartable=True, save=Save(1, at_s=4.0))
        ends, _ = _after(runs, fresh, LeaseGone(_ID, None))
        assert ends.view.state == state


def test_what_a_node_says_of_a_run_is_caught_up_with() -> None:
    known = NodeRun(_ID, "running", at_s=6.0, save=Save(4, at_s=5.5))
    found, effects = _after(_run(Starting(None), gpu_ids=[]), Found(_ID, _LEASE, ["h"], ["2", "3"], "", known))
    assert (found.view.state, found.view.running_at, found.view.gpu_ids) == ("running", 6.0, ["2", "3"])
    assert (found.save, found.view.saved_at) == (Save(4, at_s=5.5), 5.5)
    assert Commit(save=Save(4, at_s=5.5)) in effects
    waits = NodeRun(_ID, "released", outcome=Outcome("ok", granted_s=4.0), waits_for=_WAIT)
    found, _ = _after(_run(Queued()), Found(_ID, _LEASE, ["h"], ["0"], "", waits), LeaseGone(_ID, 9.0))
    assert (found.view.granted_at, found.view.state, found.view.waits_for) == (4.0, "persisting", _WAIT)
    final = Found(_ID, None, ["h"], [], "", NodeRun(_ID, "final", outcome=Outcome("ok")), waits_for=_WAIT)
    assert _after(_run(Persisting(Outcome("ok"))), final)[0].view.state == "succeeded"


def test_a_restartable_run_that_waited_for_its_next_attempt_goes_on_waiting() -> None:
    attempts = [Attempt(2.0, 5.0, status="preempted", was_saved=True)]
    queued = _run(Queued(), restartable=True, attempts=attempts, save=Save(1))
    found = Found(queued.attempt_id, None, [], [], "its agent was restarted", is_unbegun=False)
    assert _after(queued, found)[1] == [Enqueue()]


def test_what_a_node_may_keep_of_runs() -> None:
    over, later = AttemptId("over", 0), AttemptId("r", 1)
    attempts = [Attempt(2.0, 5.0, status="preempted")]
    runs = {
        "r": _run(Running(Lease("lease", later, (Slot("n", 2),))), attempts=attempts),
        "waits": _run(Queued()),
        "over": _run(Ended(RunState.SUCCEEDED, Outcome("ok"))),
    }
    seen = {
        "of a run that nobody knows": NodeRun(AttemptId("unknown", 0), "running"),
        "results of a run that nobody knows": NodeRun(AttemptId("unknown", 0), "final"),
        "the attempt before": NodeRun(_ID, "running"),
        "results of the attempt before": NodeRun(_ID, "released"),
        "what runs": NodeRun(later, "running"),
        "results of what is over": NodeRun(over, "final"),
        "what is over": NodeRun(over, "running"),
        "what waits": NodeRun(AttemptId("waits", 0), "starting"),
    }
    ended = unwanted(lambda run: runs.get(run), seen.values(), "n")
    assert [name for name, known in seen.items() if known in ended] == [
        "of a run that nobody knows",
        "the attempt before",
        "results of the attempt before",
        "what is over",
        "what waits",
    ]
    assert unwanted(lambda run: runs.get(run), [seen["what runs"]], "elsewhere") == [seen["what runs"]]
