"""Learned run times: a guess lets nobody pass, and a run that is put back has taught nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling import learned_run_times
from jupyter_gpu_release.scheduling import run_times as history
from jupyter_gpu_release.scheduling.learned_run_times import LearnedRunTimes
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.state import StatedRunTimes
from jupyter_gpu_release.scheduling.workload import GPU, Rank, Run


def submitted(run_times: LearnedRunTimes, name: str, now_s: float = 0.0, limit_s: float | None = None) -> Run:
    run_times.submitted(name, "ann", 1, "", now_s, "n.ipynb#c")
    return Run(name, "q", (Rank(),), GPU, 1, user="ann", submitted_at=now_s, limit_s=limit_s)


def test_a_run_that_is_like_no_other_may_take_as_long_as_its_limit() -> None:
    run_times = LearnedRunTimes(8)
    first, limited = submitted(run_times, "first"), submitted(run_times, "limited", limit_s=60.0)
    assert run_times.expected_s(first, 0.0) is None
    assert run_times.expected_s(limited, 0.0) == 60.0
    run_times.started("first", 0.0)
    run_times.ended("first", 20.0)
    assert run_times.expected_s(limited, 20.0) == pytest.approx(20.0)
    assert run_times.remaining_s(limited, 0.0, 55.0) == 5.0, "a limit is a limit"


def test_the_first_run_of_a_user_and_size_is_expected_to_be_like_all_others() -> None:
    run_times = LearnedRunTimes(8)
    for at in range(20):
        submitted(run_times, f"r{at}"), run_times.started(f"r{at}", 0.0), run_times.ended(f"r{at}", 20.0)
    run_times.submitted("new", "bob", 2, "", 20.0)
    new = Run("new", "q", (Rank(),), 2 * GPU, 1, user="bob", submitted_at=20.0, started_at=20.0)
    assert run_times.length(new, 20.0).expected_s == pytest.approx(20.0)
    assert run_times.rest(new, 30.0).late_s == pytest.approx(10.0)


def test_the_work_of_a_gang_is_that_of_all_its_ranks() -> None:
    lone = Run("r", "q", (Rank(),), GPU, 1, expected_s=30.0)
    ranks = [StatedRunTimes().rank(run, 10.0)[0] for run in (lone, replace(lone, ranks=(Rank(),) * 2, min_ranks=2))]
    assert ranks[0] == 2 * ranks[1]


def test_runs_of_one_user_and_task_are_a_campaign() -> None:
    run_times = LearnedRunTimes(8)
    names = [
        run_times.submitted(f"r{at}", *of)
        for at, of in enumerate(
            [("ann", 1, "", 0.0, "a"), ("ann", 1, "", 1.0, "a"), ("bob", 1, "", 2.0, "a"), ("ann", 1, "", 3.0, "b")]
        )
    ]
    assert (names[0] == names[1], len(set(names))) == (True, 3)
    assert [run_times.campaign_of(f"r{at}") for at in range(4)] == names


def test_a_run_that_is_put_back_waits_as_before() -> None:
    run_times = LearnedRunTimes(8)
    one, two = submitted(run_times, "one"), submitted(run_times, "two", 5.0)
    before = run_times.rank(one, 50.0), run_times.overtaken_s("one", 50.0), run_times.rank(two, 50.0)
    run_times.started("one", 10.0)
    assert run_times.has_started("one")
    run_times.put_back("one")
    assert not run_times.has_started("one")
    assert (run_times.rank(one, 50.0), run_times.overtaken_s("one", 50.0), run_times.rank(two, 50.0)) == before
    run_times.started("one", 20.0)
    run_times.ended("one", 30.0)
    assert not run_times.knows("one")


@pytest.mark.parametrize("most_ended", [20, 10_000], ids=["numbered anew meanwhile", "not"])
def test_a_run_that_is_put_back_is_overtaken_no_longer_than_others(
    monkeypatch: pytest.MonkeyPatch, most_ended: int
) -> None:
    """While it ran nobody else of its size waited, and it was none of those that are looked at."""
    monkeypatch.setattr(learned_run_times, "_MOST_ENDED", most_ended)
    run_times = LearnedRunTimes(8)
    run_times.submitted("put back", "ann", 4, "", 0.0)
    run_times.started("put back", 0.0)
    assert not run_times.overdue(0.0)
    for number in range(40):
        submitted(run_times, f"r{number}", 1.0), run_times.started(f"r{number}", 1.0)
        run_times.ended(f"r{number}", 1e6)
    run_times.put_back("put back")
    assert run_times.overdue(1e6) == {"put back"}


def test_a_run_that_nobody_told_of_says_itself_how_long_it_takes() -> None:
    run_times = LearnedRunTimes(8)
    stranger = Run("stranger", "q", (Rank(),), GPU, 1, expected_s=30.0)
    assert run_times.expected_s(stranger, 0.0) == 30.0
    assert run_times.remaining_s(stranger, 0.0, 10.0) == 20.0
    assert len(run_times.rank(stranger, 10.0)) == 1
    run_times.started("stranger", 0.0)
    run_times.ended("stranger", 1.0)


def test_what_is_learned_stays_small_however_many_runs_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run that waits for ever keeps nothing else, and is told the same of who overtook it."""
    plain = LearnedRunTimes(8)
    monkeypatch.setattr(history, "_MOST_CAMPAIGNS", 50)
    for told in (plain, LearnedRunTimes(8)):
        monkeypatch.setattr(learned_run_times, "_MOST_ENDED", 10**9 if told is plain else 20)
        told.submitted("old", "ann", 1, "", 0.0)
        for number in range(500):
            told.submitted(f"r{number}", f"user {number}", 1, "", float(number))
            told.started(f"r{number}", float(number))
            if number % 100:
                told.ended(f"r{number}", number + 7.0)
        if told is plain:
            expected = [told.overtaken_s(run, 600.0) for run in ("old", "r0", "r300", "r400")]
    assert [told.overtaken_s(run, 600.0) for run in ("old", "r0", "r300", "r400")] == pytest.approx(expected)
    assert len(told._held._tree) < 100
    assert sum(map(len, told._by_size.values())) < 100
    assert len(told._history._campaigns) == 50
    told.put_back("r400")
    assert told.overdue(1e6)


def test_a_clock_that_is_set_back_makes_no_run_shorter_than_nothing() -> None:
    told = LearnedRunTimes(8)
    for number in range(10):
        told.submitted(f"r{number}", "ann", 1, "", 1000.0)
        told.started(f"r{number}", 1000.0)
        told.ended(f"r{number}", 10.0)
    told.submitted("next", "ann", 1, "", 1000.0)
    assert told.length(to_run("next", ResourceAsk(gpus=1), queue="q"), 1000.0).expected_s >= 0.0
