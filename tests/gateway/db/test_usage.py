"""GPU-seconds held, used and saved: the account by table, and as a ledger gives it."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import select

from jupyter_gpu_release.gateway.accounting import last_midnights
from jupyter_gpu_release.gateway.db.database import insert_run, open_ledger, put_session, update_run
from jupyter_gpu_release.gateway.db.rows import StoredSession, WarmLeaseRow, WarmSpan
from jupyter_gpu_release.gateway.db.run_times import drop_attempt, past_runs, put_attempt
from jupyter_gpu_release.gateway.db.schema import COUNTED_S, attempts, warm_times
from jupyter_gpu_release.gateway.db.usage import (
    SIGN_S,
    WEEK_S,
    LeaseUse,
    capacity_seconds,
    put_capacity,
    put_session_end,
    put_sign_of_life,
    put_use,
    read_capacity,
    read_leases,
    usage_between,
)
from jupyter_gpu_release.gateway.db.warm_leases import end_warm_lease
from jupyter_gpu_release.protocol.rest import Usage
from jupyter_gpu_release.protocol.runs import Attempt, ResourceAsk, RunRequest, RunView

NOW = 10_000.0
DAY_S = 86_400.0
_ALL = [0.0, float(NOW)]


def _held(
    since: float,
    until: float | None,
    *,
    user: str = "ann",
    session: str = "s",
    gpus: float = 1,
    running_at: float | None = None,
    mean: float | None = None,
) -> LeaseUse:
    return LeaseUse(user, session, gpus, since, since if running_at is None else running_at, until, mean)


@pytest.mark.parametrize(
    ("leases", "ends", "expected"),
    [
        ([_held(100, 200, gpus=2)], {}, Usage(200, 200, 0)),
        # measured use counts, else the time since the first statement
        ([_held(100, 200, mean=0.25)], {}, Usage(100, 25, 0)),
        ([_held(100, 200, running_at=140)], {}, Usage(100, 60, 0)),
        # one that goes on, and one that began before the time that is counted
        ([_held(9_900, None)], {}, Usage(100, 100, 0)),
        ([_held(-50, 50)], {}, Usage(50, 50, 0)),
        # the kernel lived on: between its runs, after the last one, until it ended or now
        ([_held(100, 200, gpus=2), _held(500, 600)], {}, Usage(300, 300, 600)),
        ([_held(100, 200, gpus=2)], {"s": 260}, Usage(200, 200, 120)),
        # at most 30 minutes after the last one
        ([_held(100, 200)], {"s": float("inf")}, Usage(100, 100, 1_800)),
        ([_held(-200, -100)], {"s": 50}, Usage(0, 0, 50)),
        # runs at the same time: only when none of them holds anything is something saved
        ([_held(100, 400), _held(200, 300, gpus=4)], {"s": 500}, Usage(700, 700, 100)),
        # sent by no kernel
        ([_held(100, 200, session=""), _held(300, 400, session="")], {"": float("inf")}, Usage(200, 200, 0)),
    ],
)
def test_the_account(leases: list[LeaseUse], ends: dict[str, float], expected: Usage) -> None:
    assert usage_between(_ALL, leases, ends) == [{"ann": expected}]
    assert usage_between(_ALL, reversed(leases), ends) == [{"ann": expected}]


def test_what_was_kept_warm_is_neither_held_nor_saved() -> None:
    """From 200 to 320 two GPUs, then still one: of the 2 × 300 s until the next run 240 are not saved."""
    leases = [_held(100, 200, gpus=2), _held(500, 600)]
    kept = [WarmSpan("ann", 2, 200, 320), WarmSpan("bob", 1, 9_990, None), WarmSpan("ann", 1, -50, -20)]
    (found,) = usage_between(_ALL, leases, {}, kept)
    assert found == {"ann": Usage(300, 300, 360, 240), "bob": Usage(kept_s=10)}


def test_each_user_has_an_account_of_ones_own() -> None:
    (found,) = usage_between(_ALL, [_held(100, 200), _held(100, 300, user="bob", session="t")], {"t": 310})
    assert found == {"ann": Usage(100, 100, 0), "bob": Usage(200, 200, 10)}


def test_the_ledger_tells_leases_and_ends(tmp_path: Path) -> None:
    engine = open_ledger(tmp_path / "ledger.sqlite")
    with engine.begin() as link:
        for run, session, gpus, until in (("a", "s", 2, 300.0), ("b", "t", 1, None), ("c", "s", 0, 300.0)):
            view = RunView(run=run, user="ann", state="queued", seq=1, gpus=gpus, session=session, submitted_at=100.0)
            insert_run(link, view, 1, RunRequest(run, session, ResourceAsk(gpus, 1), b""))
            changed = {"state": "succeeded" if until else "running", "granted_at": 200.0, "gone_at": until}
            update_run(link, RunView(**{name: getattr(view, name) for name in view.__struct_fields__} | changed), None)
        put_use(link, "a", 0.5)
        put_use(link, "a", 0.75)
        put_session(link, StoredSession("t", "ann", "live", 90.0))
        put_session(link, StoredSession("s", "ann", "ended", 350.0))
        put_session_end(link, "s", 350.0)
        leases, ends = read_leases(link, 0.0)
    assert sorted((lease.gpus, lease.until, lease.mean) for lease in leases if lease.until) == [(2, 300.0, 0.75)]
    assert usage_between([0.0, 400.0], leases, ends) == [{"ann": Usage(400.0, 150.0, 100.0)}]
    with engine.begin() as link:
        for run, gpus in (("b", 4), ("put back", 3)):
            put_attempt(link, RunView(run, "ann", "running", gpus=gpus, session="s"), Attempt(110.0, 130.0))
        drop_attempt(link, "put back", 0)
        assert [lease.gpus for lease in read_leases(link, 0.0)[0] if lease.until == 130.0] == [4]


def test_a_run_counts_however_long_ago_it_was_submitted(tmp_path: Path) -> None:
    """One goes on for 30 days, one ended yesterday; one ended long ago."""
    engine, now_s = open_ledger(tmp_path / "ledger.sqlite"), 30 * DAY_S
    with engine.begin() as link:
        for run, gpus, until_s in (("a", 1, None), ("b", 2, 29 * DAY_S), ("c", 4, 10 * DAY_S)):
            view = RunView(run=run, user="ann", state="queued", seq=1, gpus=gpus, session=run)
            insert_run(link, view, 1, RunRequest(run, run, ResourceAsk(gpus, 1), b""))
            state = "running" if until_s is None else "succeeded"
            update_run(link, replace(view, state=state, granted_at=0.0, gone_at=until_s, finished_at=until_s), None)
        leases, ends = read_leases(link, now_s - WEEK_S)
    assert sorted(lease.gpus for lease in leases) == [1, 2]
    (found,) = usage_between([now_s - WEEK_S, now_s], leases, ends)
    assert found["ann"].held_s == (7 + 2 * 6) * DAY_S


def test_what_an_imported_run_held_elsewhere_counts_nowhere_here(tmp_path: Path) -> None:
    engine = open_ledger(tmp_path / "ledger.sqlite")
    view = RunView(
        run="a", user="ann", state="succeeded", seq=1, gpus=8, submitted_at=1.0, imported_from="the other lab"
    )
    view = replace(view, granted_at=2.0, running_at=3.0, gone_at=4.0, finished_at=5.0)
    with engine.begin() as link:
        insert_run(link, view, 1, RunRequest("a", "", ResourceAsk(8, 1), b""))
        update_run(link, view, None)
        assert read_leases(link, 0.0)[0] == []
        assert past_runs(link, 10) == [], "other GPUs than the cluster's: they say nothing of how long its runs take"


def test_two_who_share_one_gpu_save_it_for_each_other() -> None:
    """Ada's pause is grace's run: with GPUs of their own they would have needed two, and there is one."""
    leases = [_held(0, 100), _held(100, 200, user="bob", session="t"), _held(200, 300)]
    (found,) = usage_between(_ALL, leases, {"s": 300.0, "t": 300.0}, capacity=[(0.0, 1)])
    assert found == {"ann": Usage(200, 200, 100, 0, 100), "bob": Usage(100, 100, 100, 0, 100)}


def test_parts_that_end_leave_nothing_of_their_sum() -> None:
    """0.7 + 0.1 - 0.7 - 0.1 is not 0 in floats."""
    leases = [_held(0, 10, gpus=0.7), _held(5, 12, gpus=0.1), _held(20, 30)]
    (found,) = usage_between(_ALL, leases, {"s": 100.0}, capacity=[(0.0, 4)])
    assert found["ann"].held_s == pytest.approx(17.7)


_CELLS = st.lists(
    st.tuples(st.sampled_from(["ann/s", "ann/t", "bob/u"]), st.integers(0, 40), st.integers(1, 20), st.integers(1, 3)),
    max_size=8,
)


@given(
    _CELLS, st.dictionaries(st.sampled_from(["s", "t", "u"]), st.integers(0, 90)), st.integers(0, 4), st.integers(0, 4)
)
def test_saved_is_what_a_simulation_second_by_second_says(
    cells: list[tuple[str, int, int, int]], ends: dict[str, int], before: int, after: int
) -> None:
    """Never more than the cluster had at that time; others used no more than they held."""
    leases = [
        _held(begin, begin + long, user=who.split("/")[0], session=who.split("/")[1], gpus=gpus)
        for who, begin, long, gpus in cells
    ]
    capacity = [(-5.0, before), (50.0, after)]
    there = {name: float(end) for name, end in ends.items()}
    (found,) = usage_between([0.0, 100.0], leases, there, capacity=capacity)
    saved = sum(_saved_in(second, leases, ends, before if second < 50 else after) for second in range(100))
    assert sum(usage.saved_s for usage in found.values()) == pytest.approx(saved)
    for user, usage in found.items():
        others = sum(each.held_s for name, each in found.items() if name != user)
        assert usage.others_s <= min(usage.saved_s, others) + 1e-6


@given(_CELLS, st.dictionaries(st.sampled_from(["s", "t", "u"]), st.integers(0, 90)), st.integers(1, 99))
def test_days_add_up_to_the_week(cells: list[tuple[str, int, int, int]], ends: dict[str, int], midnight: int) -> None:
    leases = [
        _held(begin, begin + long, user=who.split("/")[0], session=who.split("/")[1], gpus=gpus)
        for who, begin, long, gpus in cells
    ]
    there = {name: float(end) for name, end in ends.items()}
    capacity = [(-5.0, 2), (50.0, 3)]
    (whole,) = usage_between([0.0, 100.0], leases, there, capacity=capacity)
    parts = usage_between([0.0, float(midnight), 100.0], leases, there, capacity=capacity)
    for name in ("held_s", "used_s", "saved_s", "others_s"):
        for user, usage in whole.items():
            days = sum(getattr(part.get(user, Usage()), name) for part in parts)
            assert days == pytest.approx(getattr(usage, name)), name


def test_what_the_cluster_could_have_given() -> None:
    assert capacity_seconds([(10.0, 2), (50.0, 3), (60.0, 0)], 0.0, 100.0) == 40 * 2 + 10 * 3
    assert capacity_seconds([(10.0, 2)], 20.0, 25.0) == 10
    assert capacity_seconds([], 0.0, 100.0) == 0


def test_days_begin_at_midnight_also_where_one_is_of_23_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        days = last_midnights(datetime(2026, 3, 31, 15, 30).timestamp())
        assert [datetime.fromtimestamp(day).strftime("%d %H:%M") for day in days] == [
            f"{day} 00:00" for day in range(25, 32)
        ]
        assert days[5] - days[4] == 23 * 3600
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_cluster_that_was_stopped_had_no_gpus(tmp_path: Path) -> None:
    """Four GPUs, up for an hour on Monday and again on Friday, are no hundred hours."""
    engine, day_s = open_ledger(tmp_path / "ledger.sqlite"), 86400.0
    with engine.begin() as connection:
        for up_s in (1000.0, 1000.0 + 4 * day_s):
            for minute in range(61):
                put_sign_of_life(connection, up_s + SIGN_S * minute)
                put_capacity(connection, up_s + SIGN_S * minute, 4)
        known = read_capacity(connection, 0.0)
        last_s = 1000.0 + 4 * day_s + 3600.0
        assert capacity_seconds(known, 0.0, last_s) == pytest.approx(2 * 3600.0 * 4)
        put_sign_of_life(connection, last_s + SIGN_S)  # a gateway that dies is back in seconds: its cluster was there
        assert read_capacity(connection, 0.0) == known
        put_sign_of_life(connection, 9 * day_s)
        put_capacity(connection, 9 * day_s, 8)
        put_sign_of_life(connection, 10 * day_s)  # it was stopped right after that
        assert [gpus for _, gpus in read_capacity(connection, 0.0)] == [4, 0, 4, 0, 8, 0]
    engine.dispose()


def _saved_in(second: int, leases: list[LeaseUse], ends: dict[str, int], capacity: int) -> float:
    held, wanted = sum(lease.gpus for lease in leases if _covers(lease, second)), 0
    for session in {lease.session for lease in leases}:
        own = sorted((lease for lease in leases if lease.session == session), key=lambda lease: lease.since)
        past = [lease for lease in own if lease.until is not None and lease.until <= second]
        is_there = second < ends.get(session, 0) or any(lease.since > second for lease in own)
        if past and is_there and not any(_covers(lease, second) for lease in own):
            last = max(lease.until or 0 for lease in past)
            wanted += [lease for lease in past if lease.until == last][-1].gpus
    return min(wanted, max(capacity, held))


def _covers(lease: LeaseUse, second: int) -> bool:
    return lease.since <= second < (lease.until or NOW)


def test_the_ledger_knows_how_many_gpus_there_were_when(tmp_path: Path) -> None:
    engine = open_ledger(tmp_path / "ledger.sqlite")
    with engine.begin() as connection:
        assert read_capacity(connection, 0.0) == []
        for since, gpus in ((100.0, 4), (200.0, 0), (300.0, 0), (400.0, 8)):
            put_capacity(connection, since, gpus)
        assert read_capacity(connection, 150.0) == [(100.0, 4), (200.0, 0), (400.0, 8)]
        assert read_capacity(connection, 0.0) == [(100.0, 4), (200.0, 0), (400.0, 8)]
        put_capacity(connection, 400.0 + 3 * 7 * 86400, 2)
        assert read_capacity(connection, 0.0) == [(400.0, 8), (400.0 + 3 * 7 * 86400, 2)]
    engine.dispose()


def test_times_that_no_sum_counts_any_more_are_forgotten(tmp_path: Path) -> None:
    engine = open_ledger(tmp_path / "ledger.sqlite")
    view, kept = RunView("r", "ann", "running", gpus=1, session="s"), WarmLeaseRow("ann", "s", 0.0, 1.0)
    with engine.begin() as link:
        for ended_at in (100.0, 100.0 + COUNTED_S, 101.0 + COUNTED_S):
            put_attempt(link, replace(view, run=str(ended_at)), Attempt(ended_at - 50, ended_at))
            end_warm_lease(link, str(ended_at), "r", 1, kept, ended_at, "its time was over")
        for table in (attempts, warm_times):
            assert list(link.execute(select(table.c.until)).scalars()) == [100.0 + COUNTED_S, 101.0 + COUNTED_S]
    engine.dispose()
