"""The machine of a run's life: in virtual time, whatever happens, no GPU has two attempts, and each run ends once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_world import World
from soak import sized

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.runs.machine import (
    Abandon,
    Accepted,
    Ask,
    Cancel,
    Commit,
    Effect,
    EndLease,
    Event,
    Forgotten,
    Found,
    GiveBack,
    Granted,
    Heard,
    LeaseGone,
    Lost,
    NoticeDue,
    SendSignal,
    Silent,
    StartFailed,
    Stays,
    Unheard,
    Unstarted,
    WatchNotice,
    step,
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
from jupyter_gpu_release.protocol.node import AttemptId, NodeRun, RunPhase, RunSaved, RunStays
from jupyter_gpu_release.protocol.runs import (
    KeptLease,
    Outcome,
    Preemption,
    ResourceAsk,
    RunRequest,
    RunView,
    Save,
    StartEstimate,
)
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.scheduling.decisions import Slot

#: actions, some more often than others
_ACTIONS = [
    *[World.submit] * 3,
    *[World.settle] * 5,
    *[World.go_on] * 3,
    *[World.deliver] * 2,
    *[World.work] * 4,
    *[World.look] * 4,
    *[World.pass_grace] * 2,
    *[World.come_back] * 3,
    World.cancel,
    World.preempt,
    World.kill_rank,
    World.kill_agent,
    *[World.refuse] * 2,
    *[World.begin_and_die] * 2,
    World.fall_silent,
    World.commit,
    World.restart,
]

#: histories that a search has found once
_FOUND = {
    "the gateway dies twice before its ledger has caught up": (
        "submit 0, cancel 0, look 0, settle 0, work 0, restart 0, pass_grace 0, restart 0, settle 0"
    ),
    "an ended run's lease is another's by now, and nothing of its start is committed": (
        "look 1, go_on 0, submit 0, settle 0, work 0, work 1, work 1, work 1, settle 0, submit 0, settle 0, "
        "fall_silent 1, restart 0, begin_and_die 0, settle 0"
    ),
    "an ended run's lease is another's by now, and its agent dies with the gateway": (
        "look 1, submit 0, settle 0, work 1, work 1, work 1, settle 0, submit 0, settle 0, "
        "kill_agent 1, restart 0, settle 0"
    ),
    "a node has ended what an earlier gateway did not want, and the next one waits for its results": (
        "restart 0, settle 0, work 0, work 0, work 0, work 0, submit 0, settle 0, begin_and_die 0"
    ),
}


@pytest.mark.parametrize("history", _FOUND.values(), ids=_FOUND)
def test_what_was_found_once(history: str) -> None:
    _live([(getattr(World, name), int(number)) for name, number in (step.split() for step in history.split(", "))])


_ID = AttemptId("r", 0)
_LEASE = Lease("lease", _ID, (Slot("n", 2),))
_KILL, _END_OF_GRACE = SendSignal(_LEASE, "kill"), SendSignal(_LEASE, "kill", "preempted")
_NOTICE = Preemption("preempt", "bob's run goes first", 10.0, 50.0, "other")
_TOLD = Preempting(_LEASE, _NOTICE, is_told=True)
_OK = Outcome("ok", notes=["as it was"])


def _run(stage: Stage, ask: ResourceAsk | None = None, **facts: Any) -> RunSnapshot:
    shown = {name: facts.pop(name) for name in list(facts) if name in RunView.__struct_fields__}
    view = RunView("r", "ann", stage.state.word, hosts=["h"], gpu_ids=["0"], submitted_at=1.0, **shown)
    request = RunRequest("r", "s", ask or ResourceAsk(2), b"cell", restartable=view.restartable)
    return RunSnapshot(view, request, stage, **facts)


@pytest.mark.parametrize(
    ("run", "event", "effects"),
    [
        (_run(Queued()), Unstarted(ClusterError("ours"), _LEASE), [GiveBack(_LEASE)]),
        (_run(Ended(RunState.CANCELLED, _OK)), Granted(_LEASE, {}), [GiveBack(_LEASE)]),
        (_run(Preempting(None, _NOTICE)), Found(_ID, _LEASE, ["h"], ["0"], "", is_silent=True), [WatchNotice(_NOTICE)]),
        (
            _run(Persisting(_OK)),
            Found(_ID, _LEASE, ["h"], ["0"], "", NodeRun(_ID, "released"), is_unbegun=False),
            [GiveBack(_LEASE)],
        ),
        (_run(Running(_LEASE)), Lost(_ID, "gone", ends=True), [Abandon(_ID, ["h"])]),
        (_run(Releasing(_LEASE, _OK)), LeaseGone(_ID, 9.0, KeptLease(99.0, 90.0)), [Commit(kept=_LEASE)]),
        (_run(_TOLD), NoticeDue(_ID, is_needed=True), [_END_OF_GRACE]),
        (_run(_TOLD, cancellation=Cancellation("ann")), NoticeDue(_ID, is_needed=True), []),
        (_run(_TOLD), NoticeDue(_ID, is_needed=False), [Stays(_NOTICE, spares=False)]),
        (_run(Running(_LEASE)), RunStays(_ID, "it has a socket"), [Stays(None, spares=False)]),
        (_run(Running(_LEASE), cancellation=Cancellation("ann", 1)), Cancel("bob"), [_KILL]),
        (_run(Running(_LEASE), cancellation=Cancellation(unsent="kill")), Heard("n"), [_KILL]),
        (
            _run(Starting(_LEASE, is_accepted=True), put_back=3),
            Forgotten(_ID, "again", "lost"),
            [EndLease(_LEASE, is_clean=False)],
        ),
        (_run(Starting(_LEASE, forgotten="why")), Accepted(_ID), [Ask(Forgotten(_ID, "why", "why"))]),
    ],
)
def test_what_has_to_be_done(run: RunSnapshot, event: Event, effects: list[Effect]) -> None:
    """Where none of these follows, somebody keeps GPUs, or waits for them in vain."""
    known = (GiveBack, WatchNotice, Abandon, SendSignal, Stays, Ask)
    done = [e for e in step(run, event, 60.0)[1] if isinstance(e, known) or e in effects]
    assert done == effects


def test_what_is_known_of_it_afterwards() -> None:
    again, _ = step(_run(Starting(_LEASE)), StartFailed(_ID, ClusterError("away"), has_begun=False), 60.0)
    assert (again.view.hosts, again.view.reason, again.view.vain_starts) == ([], "away", 1)
    assert again.attempt_id == AttemptId(_ID.run, _ID.attempt + 1)  # its node may still know the one in vain
    later, _ = step(_run(Persisting(Outcome("preempted")), restartable=True), RunPhase(_ID, "final", 50.0), 60.0)
    assert (later.view.hosts, later.view.gpu_ids, len(later.view.attempts)) == ([], [], 1)
    # one that ends while it waits has ended with the attempt before
    over, effects = step(later, Cancel("cancelled by ann"), 90.0)
    assert (over.view.attempts, over.view.hosts, over.view.state) == ([], ["h"], "cancelled")
    assert Commit(undone=0) in effects
    gone, _ = step(_run(Releasing(_LEASE, _OK)), LeaseGone(_ID, 9.0, note="Ray is slow"), 60.0)
    assert gone.outcome is not None
    assert gone.outcome.notes == ["as it was", "Ray is slow"]
    cancelled, _ = step(_run(Running(_LEASE)), Cancel("ann", gives_up=True), 60.0)
    cancelled, _ = step(cancelled, Cancel("bob", gives_up=False), 60.0)
    assert (cancelled.cancellation.reason, cancelled.cancellation.is_given_up) == ("ann", True)
    killed, _ = step(_run(Running(_LEASE), cancellation=Cancellation(unsent="kill")), Unheard(_ID, "interrupt"), 60.0)
    assert killed.cancellation.unsent == "kill", "it came later"
    saved, _ = step(_run(Running(_LEASE)), RunSaved(_ID, Save(1, at_s=7.0)), 60.0)
    assert (saved.view.saved_at, saved.save) == (7.0, Save(1, at_s=7.0))
    blamed, _ = step(_run(Running(_LEASE), deaths={0: ("h", 5.0)}), Lost(_ID, "gone", "other"), 60.0)
    assert blamed.deaths == {0: ("h", 5.0)}, "what is heard later is a consequence"
    assert not _run(Running(_LEASE), restartable=True, cancellation=Cancellation("ann")).may_be_asked


def test_an_elastic_run_has_the_ranks_of_its_lease_and_no_expected_start_once_it_has_begun() -> None:
    waits = _run(Queued(), ResourceAsk(4, ranks=8, min_gpus=2), start=StartEstimate(99.0))
    begun, _ = step(waits, Granted(_LEASE, {}), 60.0)
    assert (begun.view.gpus, begun.view.ranks, begun.view.start) == (2, 4, None)
    told, _ = step(waits, Silent("n", "away"), 60.0)
    assert told.view.start == StartEstimate(99.0)


@pytest.mark.thorough
@pytest.mark.soak
@settings(max_examples=sized(2000, 30_000), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(history=st.binary(min_size=40, max_size=100))
def test_no_gpu_has_two_attempts_and_each_run_ends_once(history: bytes) -> None:
    pairs = zip(history[::2], history[1::2], strict=False)
    _live([(_ACTIONS[action % len(_ACTIONS)], number) for action, number in pairs])


def _live(history: list[tuple[Callable[[World, int], None], int]]) -> None:
    world = World()
    world.submit(1)
    for act, number in history:
        act(world, number)
        world.check_gpus()
    world.become_quiet()
