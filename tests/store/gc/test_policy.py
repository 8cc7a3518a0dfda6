"""What goes and what stays, by age, count and quota; what may never go; what a removal frees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_release.protocol.config import RetentionPolicy
from jupyter_gpu_release.store.gc.policy import StoredResults, choose_removals, measure_space, why_kept

DAY, GIB = 86400.0, 1 << 30
NOW = 100 * DAY
MONTH = RetentionPolicy(older_than_s=30 * DAY)


def results(number: int, age_s: float = 50 * DAY, **more: object) -> StoredResults:
    facts = StoredResults(f"run-{number}", "ann", "a.ipynb", NOW - age_s, NOW - age_s, own_bytes=GIB)
    return replace(facts, **more)  # type: ignore[arg-type]


def gone(runs: list[StoredResults], policy: RetentionPolicy) -> list[str]:
    return [removal.run for removal in choose_removals(runs, policy, NOW)]


def test_without_limits_nothing_goes() -> None:
    assert choose_removals([results(n, age_s=10_000 * DAY) for n in range(50)], RetentionPolicy(), NOW) == []


def test_by_age_of_the_last_use() -> None:
    runs = [results(1, 31 * DAY), results(2, 29 * DAY), results(3, 31 * DAY, loaded_at=NOW - DAY)]
    runs.append(results(4, 31 * DAY, reused_at=NOW - 2 * DAY))
    (removal,) = choose_removals(runs, MONTH, NOW)
    assert (removal.run, removal.reason, removal.bytes) == ("run-1", "not used for 31 days", GIB)


@pytest.mark.parametrize(
    ("why", "facts"),
    [
        ("pinned", {"pinned": True}),
        ("held by a connected kernel", {"held": True}),
        ("not over", {"finished_at": None}),
        ("reused within 1 d", {"reused_at": NOW - 0.9 * DAY}),
        ("used within 1 h", {"finished_at": NOW - 3500}),
    ],
)
def test_what_may_never_go(why: str, facts: dict[str, object]) -> None:
    strict = RetentionPolicy(older_than_s=1, keep=1, quota_bytes=1)
    kept = results(1, **facts)
    runs = [kept, results(2), results(3, age_s=49 * DAY)]
    assert why_kept(kept, NOW) == why
    assert "run-1" not in gone(runs, strict)
    assert {"run-2", "run-3"} <= set(gone(runs, strict))


def test_by_count_the_newest_of_each_notebook_stay() -> None:
    runs = [results(n, n * DAY) for n in range(1, 6)] + [results(9, 90 * DAY, notebook="b.ipynb")]
    assert gone(runs, RetentionPolicy(keep=3)) == ["run-5", "run-4"]
    assert choose_removals(runs, RetentionPolicy(keep=3), NOW)[0].reason == "beyond the newest 3 of a.ipynb"


def test_pinned_runs_count_but_stay() -> None:
    runs = [
        results(1, 1 * DAY),
        results(2, 2 * DAY, pinned=True),
        results(3, 3 * DAY),
        results(4, 4 * DAY, pinned=True),
    ]
    assert gone(runs, RetentionPolicy(keep=2)) == ["run-3"]


def test_the_same_notebook_of_another_user_and_runs_of_no_notebook_do_not_count() -> None:
    runs = [results(1, 1 * DAY), results(2, 2 * DAY, user="bob"), *(results(n, notebook="") for n in range(3, 6))]
    assert gone(runs, RetentionPolicy(keep=1)) == []


def test_by_quota_the_least_recently_used_go_until_it_fits() -> None:
    runs = [results(n, n * DAY) for n in range(1, 6)] + [results(9, 99 * DAY, user="bob")]
    removals = choose_removals(runs, RetentionPolicy(quota_bytes=3 * GIB), NOW)
    assert [removal.run for removal in removals] == ["run-5", "run-4"]
    assert removals[0].reason == "ann has 5 GiB of 3 GiB"
    assert removals[1].reason == "ann has 4 GiB of 3 GiB"


def test_what_may_not_go_counts_towards_the_quota() -> None:
    runs = [results(1, 9 * DAY, own_bytes=5 * GIB, pinned=True), results(2, 5 * DAY), results(3, 2 * DAY, held=True)]
    assert gone(runs, RetentionPolicy(quota_bytes=4 * GIB)) == ["run-2"]


def test_a_blob_counts_once_and_is_freed_with_its_last_user() -> None:
    blob = {"d": 4 * GIB}
    runs = [results(1, 9 * DAY, shared=blob), results(2, 8 * DAY, shared=blob), results(3, 7 * DAY, own_bytes=0)]
    assert gone(runs, RetentionPolicy(quota_bytes=6 * GIB)) == []
    removals = choose_removals(runs, RetentionPolicy(quota_bytes=3 * GIB), NOW)
    assert [(removal.run, removal.bytes) for removal in removals] == [("run-1", GIB), ("run-2", 5 * GIB)]


def test_another_users_use_of_a_blob_keeps_it() -> None:
    blob = {"d": 4 * GIB}
    runs = [results(1, shared=blob), results(2, 5 * DAY, user="bob", shared=blob)]
    (removal,) = choose_removals(runs, MONTH, NOW)
    assert removal.bytes == GIB
    runs.append(results(3, 5 * DAY))
    assert gone(runs, RetentionPolicy(quota_bytes=GIB)) == ["run-1", "run-2"], "it counts no more for ann"


def test_the_first_removal_of_a_user_says_how_much_is_hers() -> None:
    """What is pinned counts, too: operators are told to ask so (docs/operate/old-results.md)."""
    runs = [results(1, pinned=True), results(2), results(3, age_s=49 * DAY), results(4, user="bob")]
    said: dict[str, str] = {}
    for removal in choose_removals(runs, RetentionPolicy(quota_bytes=1), NOW):
        said.setdefault(removal.user, removal.reason)
    assert said == {"ann": "ann has 3 GiB of 1 B", "bob": "bob has 1 GiB of 1 B"}


def test_age_and_quota_together_name_a_run_once() -> None:
    runs = [results(1, 40 * DAY), results(2, 10 * DAY), results(3, 5 * DAY)]
    both = RetentionPolicy(older_than_s=30 * DAY, quota_bytes=GIB)
    assert gone(runs, both) == ["run-1", "run-2"]


@st.composite
def _runs(draw: st.DrawFn) -> list[StoredResults]:
    ages = st.floats(0, 99 * DAY)
    return [
        results(
            number,
            draw(ages),
            user=draw(st.sampled_from("ab")),
            notebook=draw(st.sampled_from(["", "n", "m"])),
            pinned=draw(st.booleans()),
            held=draw(st.booleans()),
            own_bytes=draw(st.integers(0, 9)),
            shared=dict.fromkeys(draw(st.sets(st.sampled_from("xyz"))), 5),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


@given(_runs(), st.floats(0, 60 * DAY), st.integers(0, 4), st.integers(0, 40))
def test_always(runs: list[StoredResults], older_than_s: float, keep: int, quota: int) -> None:
    policy = RetentionPolicy(older_than_s=older_than_s, keep=keep, quota_bytes=quota)
    removals = choose_removals(runs, policy, NOW)
    names = [removal.run for removal in removals]
    by_name = {run.run: run for run in runs}
    assert len(set(names)) == len(names)
    assert all(not why_kept(by_name[name], NOW) for name in names)
    left = [run for run in runs if run.run not in names]
    before = sum(run.own_bytes for run in runs) + 5 * len({name for run in runs for name in run.shared})
    after = sum(run.own_bytes for run in left) + 5 * len({name for run in left for name in run.shared})
    assert sum(removal.bytes for removal in removals) == before - after
    assert choose_removals(left, policy, NOW) == []


def test_a_shared_blob_counts_once_for_each_user_for_the_oldest_run() -> None:
    old, young = results(1, 50 * DAY, shared={"a": 5}), results(2, 40 * DAY, shared={"a": 5, "b": 7})
    other = results(3, 45 * DAY, user="bob", shared={"a": 5})
    sizes = [(space.run, space.bytes) for space in measure_space([young, other, old])]
    assert sizes == [("run-1", GIB + 5), ("run-3", GIB + 5), ("run-2", GIB + 7)]
