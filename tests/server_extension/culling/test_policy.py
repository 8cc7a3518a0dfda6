"""The pure policy: each rule, and what must hold for every observation whatever it is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jupyter_gpu_release.server_extension.culling.policy import Action, Decision, Observation, Policy, Signal, decide

IDLE = (Signal("cell", False), Signal("gpu", False), Signal("cpu", False))
SEEN = Observation("k", "kernel", IDLE, held_bytes=1 << 30, idle_samples=3, idle_since_s=0.0)
POLICY = Policy(action=Action.RELEASE, kernel_idle_s=1000, warn_before_s=100)


def _word(decision: Decision) -> tuple[str, str]:
    return decision.action.word, decision.rule


@pytest.mark.parametrize(
    ("changes", "now_s", "expected"),
    [
        ({"held_bytes": 0}, 9999, ("leave", "no-gpu")),
        ({"protected": "path prod/*"}, 9999, ("leave", "protected")),
        ({}, 10, ("leave", "idle")),
        ({}, 899, ("leave", "idle")),
        ({}, 900, ("warn", "idle-warning")),
        ({"held_bytes": None}, 900, ("warn", "idle-warning")),
        ({"warned_at_s": 900.0}, 999, ("leave", "idle")),
        ({"warned_at_s": 900.0}, 1000, ("release", "idle-limit")),
        # a late warning (the server slept) still gives the whole time to answer
        ({}, 5000, ("warn", "idle-warning")),
        ({"warned_at_s": 5000.0}, 5099, ("leave", "idle")),
        ({"warned_at_s": 5000.0}, 5100, ("release", "idle-limit")),
        ({"warned_at_s": 900.0, "keep_until_s": 2800.0}, 2799, ("leave", "kept")),
        ({"warned_at_s": 900.0, "keep_until_s": 2800.0}, 2801, ("release", "idle-limit")),
        ({"idle_samples": 2}, 5000, ("leave", "samples")),
        ({"suspended": True}, 5000, ("leave", "suspended")),
        ({"warned_at_s": 900.0, "acted_at_s": 1000.0}, 1999, ("leave", "done")),
        ({"warned_at_s": 900.0, "acted_at_s": 1000.0}, 2001, ("release", "idle-limit")),
        ({"connections": 2}, 900, ("warn", "idle-warning")),
        # the clock of the record lies ahead: no time has passed
        ({"idle_since_s": 9000.0}, 10, ("leave", "idle")),
        ({"signals": (*IDLE, Signal("cell", True, "a cell is running"))}, 5000, ("leave", "busy")),
        ({"signals": (*IDLE, Signal("gpu", None, "not told"))}, 5000, ("leave", "unknown")),
        ({"signals": ()}, 5000, ("leave", "unknown")),
    ],
)
def test_a_kernel_that_holds_a_gpu(changes: dict[str, object], now_s: float, expected: tuple[str, str]) -> None:
    decision = decide(replace(SEEN, **changes), POLICY, now_s)  # type: ignore[arg-type]
    assert _word(decision) == expected
    assert decision.reason


@pytest.mark.parametrize(
    ("changes", "now_s", "due_s"),
    [
        ({}, 10, 990),
        ({}, 900, 100),
        ({}, 5000, 100),  # a late warning
        ({"warned_at_s": 900.0}, 960, 40),
        ({"warned_at_s": 5000.0}, 5060, 40),
        ({"warned_at_s": 900.0, "keep_until_s": 2800.0}, 2000, 800),
        ({"warned_at_s": 900.0}, 1000, None),
        ({"idle_samples": 2}, 5000, None),
    ],
)
def test_the_user_is_told_how_long_it_takes_until_something_is_done(
    changes: dict[str, object], now_s: float, due_s: float | None
) -> None:
    assert decide(replace(SEEN, **changes), POLICY, now_s).due_s == due_s  # type: ignore[arg-type]


def test_so_one_is_of_a_notice_and_of_a_lease_that_ends_by_itself() -> None:
    notices = replace(POLICY, action=Action.NOTIFY)
    assert decide(SEEN, notices, 400).due_s == 600
    lease = replace(SEEN, kind="lease", held_bytes=0, ends_at_s=1010.0)
    assert decide(lease, replace(POLICY, lease_idle_s=1000), 1000).due_s == 10


def test_open_tabs_protect_where_the_operator_says_so() -> None:
    policy = replace(POLICY, cull_connected=False)
    assert _word(decide(replace(SEEN, connections=1), policy, 5000)) == ("leave", "connected")
    assert _word(decide(SEEN, policy, 900)) == ("warn", "idle-warning")


def test_a_notice_needs_no_warning_and_comes_once_per_limit() -> None:
    policy = replace(POLICY, action=Action.NOTIFY)
    assert _word(decide(SEEN, policy, 999)) == ("leave", "idle")
    assert _word(decide(SEEN, policy, 1000)) == ("notify", "idle-limit")
    assert _word(decide(replace(SEEN, acted_at_s=1000.0), policy, 1500)) == ("leave", "done")


def test_without_a_warning_time_the_limit_is_the_moment() -> None:
    policy = replace(POLICY, warn_before_s=0.0)
    assert _word(decide(SEEN, policy, 999.9)) == ("leave", "idle")
    assert _word(decide(SEEN, policy, 1000)) == ("release", "idle-limit")


def test_no_limit_no_action() -> None:
    assert _word(decide(SEEN, replace(POLICY, kernel_idle_s=0), 1e9)) == ("leave", "no-limit")


def test_warm_leases_have_a_limit_and_an_action_of_their_own() -> None:
    lease = replace(SEEN, kind="lease", held_bytes=0)
    policy = replace(POLICY, action=Action.NOTIFY, lease_idle_s=60, warn_before_s=0)
    assert _word(decide(lease, policy, 59)) == ("leave", "idle")
    assert _word(decide(lease, policy, 60)) == ("release", "idle-limit")


@pytest.mark.parametrize(
    ("ends_at_s", "changes", "expected"),
    [
        (1010.0, {}, ("leave", "ends")),  # a warning would come 100 s before anything is done
        (1101.0, {}, ("warn", "idle-warning")),
        (1010.0, {"warned_at_s": 900.0}, ("release", "idle-limit")),
        (1000.0, {"warned_at_s": 900.0}, ("leave", "ends")),
        (950.0, {"idle_samples": 1}, ("leave", "samples")),
    ],
)
def test_what_ends_by_itself_before_it_could_be_acted_on_is_left_to_that(
    ends_at_s: float, changes: dict[str, object], expected: tuple[str, str]
) -> None:
    lease = replace(SEEN, kind="lease", held_bytes=0, ends_at_s=ends_at_s, **changes)
    policy = replace(POLICY, lease_idle_s=1000)
    assert _word(decide(lease, policy, 1000)) == expected


def test_a_starved_lease_is_told_so_and_left_alone() -> None:
    at_work = (Signal("run", True, "its run is running"),)
    lease = Observation("r", "lease", at_work, utilization=0.01, window_s=1800.0, busy_since_s=0.0)
    policy = replace(POLICY, min_utilization=0.05)
    assert _word(decide(lease, policy, 2000)) == ("notify", "low-utilization")
    assert _word(decide(replace(lease, window_s=1799.0), policy, 2000)) == ("leave", "busy")
    assert _word(decide(replace(lease, utilization=None), policy, 2000)) == ("leave", "busy")
    assert _word(decide(replace(lease, utilization=0.06), policy, 2000)) == ("leave", "busy")
    assert _word(decide(replace(lease, acted_at_s=1900.0), policy, 2000)) == ("leave", "busy")


def test_busy_for_too_long_is_told_so_and_left_alone() -> None:
    seen = replace(SEEN, signals=(Signal("cell", True, "a cell is running"),), busy_since_s=100.0)
    policy = replace(POLICY, max_busy_s=3600)
    assert _word(decide(seen, policy, 3699)) == ("leave", "busy")
    assert _word(decide(seen, policy, 3700)) == ("notify", "max-busy")
    assert _word(decide(replace(seen, acted_at_s=3700.0), policy, 3800)) == ("leave", "busy")


def test_dry_run_marks_what_would_be_done() -> None:
    policy = replace(POLICY, dry_run=True)
    assert decide(SEEN, policy, 900).dry_run
    assert not decide(SEEN, policy, 10).dry_run


_times = st.floats(0, 1e6)
_maybe = st.none() | _times
_signals = st.lists(st.builds(Signal, st.just("s"), st.sampled_from([True, False, None]), st.text(max_size=5)))
_observations = st.builds(
    Observation,
    st.just("k"),
    st.sampled_from(["kernel", "lease"]),
    _signals.map(tuple),
    held_bytes=st.none() | st.integers(0, 1 << 40),
    idle_samples=st.integers(0, 9),
    idle_since_s=_times,
    busy_since_s=_maybe,
    connections=st.integers(0, 3),
    utilization=st.none() | st.floats(0, 1),
    window_s=_times,
    warned_at_s=_maybe,
    keep_until_s=_maybe,
    acted_at_s=_maybe,
    suspended=st.booleans(),
    protected=st.sampled_from(["", "path x"]),
)
_actions = st.sampled_from([Action.NOTIFY, Action.RELEASE, Action.SUSPEND, Action.SHUTDOWN])
_policies = st.builds(
    Policy,
    _actions,
    kernel_idle_s=_times,
    lease_idle_s=_times,
    lease_action=_actions,
    warn_before_s=_times,
    samples=st.integers(1, 5),
    cull_connected=st.booleans(),
    min_utilization=st.floats(0, 1),
    utilization_window_s=_times,
    max_busy_s=_times,
    dry_run=st.booleans(),
)


@settings(max_examples=600)
@given(_observations, _policies, _times)
def test_nothing_busy_or_unknown_or_protected_or_kept_is_ever_touched(
    seen: Observation, policy: Policy, now_s: float
) -> None:
    decision = decide(seen, policy, now_s)
    assert decision.reason
    all_idle = bool(seen.signals) and all(signal.busy is False for signal in seen.signals)
    if decision.action.touches:
        assert all_idle
        assert not seen.protected
        assert not seen.suspended
        assert seen.idle_samples >= policy.samples
        assert seen.keep_until_s is None or now_s >= seen.keep_until_s
        assert policy.cull_connected or not seen.connections
        limit_s = policy.lease_idle_s if seen.kind == "lease" else policy.kernel_idle_s
        assert now_s - seen.idle_since_s >= limit_s > 0
        # whoever is touched was told so in time
        assert policy.warn_before_s == 0 or (
            seen.warned_at_s is not None and now_s >= seen.warned_at_s + policy.warn_before_s
        )
    if not all_idle:
        assert decision.action in (Action.LEAVE, Action.NOTIFY)
    if seen.kind == "kernel" and seen.held_bytes == 0:
        assert decision.action is Action.LEAVE


@given(_observations, _policies, _times)
def test_what_is_idle_for_long_is_acted_on_in_the_end(seen: Observation, policy: Policy, now_s: float) -> None:
    """Nothing idle, warned and unprotected can hide from its limit for ever."""
    plain = replace(
        seen,
        signals=IDLE,
        idle_samples=9,
        idle_since_s=0.0,
        warned_at_s=0.0,
        keep_until_s=None,
        acted_at_s=None,
        suspended=False,
        protected="",
        connections=0,
        held_bytes=seen.held_bytes or 1,
    )
    limit_s = policy.lease_idle_s if seen.kind == "lease" else policy.kernel_idle_s
    wanted = policy.lease_action if seen.kind == "lease" else policy.action
    if limit_s > 0:
        assert decide(plain, policy, limit_s + policy.warn_before_s + 1).action is wanted
