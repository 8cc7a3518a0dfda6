"""Many plain values travel together; all others are written name by name."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from jupyter_gpu_release.serialization import codec, rebuild
from jupyter_gpu_release.serialization.small_values import certainly_plain, presumed_plain
from jupyter_gpu_release.unpickling import Trust


def there(values: dict[str, Any]) -> tuple[codec.Dump, dict[str, Any]]:
    dump = codec.dump(values, rebuild.NamespaceInfo({}, at_home=True))
    return dump, codec.load(dump.stream, dump.buffers, rebuild.NamespaceInfo({}, at_home=False), trust=Trust.OWN).values


def many(**more: Any) -> dict[str, Any]:
    return {
        f"name_{number}": (number, float(number), f"text {number}", [number], {"k": number})[number % 5]
        for number in range(1000)
    } | more


def test_ten_thousand_names_are_there_with_their_values() -> None:
    values = many(nothing=None, big=1 << 100, odd="\ud800", nested={"a": [(1, {2})]})
    dump, loaded = there(values)
    assert loaded == values
    assert set(dump.sizes) == set(values)
    assert all(0 < size < 100 for size in dump.sizes.values())
    assert len(dump.stream) < 40_000  # not a pickle for each


def test_one_name_that_is_not_plain_inside_leaves_the_others_in_groups() -> None:
    dump, loaded = there(many(odd=[Path("here")], turn=2j))
    assert len(dump.stream) < 40_000
    assert set(dump.spans) == {"odd"}
    assert loaded["odd"] == [Path("here")]
    assert loaded["turn"] == 2j


def test_what_plain_names_share_stays_shared_with_all_others() -> None:
    shared: list[Any] = [1, 2]
    values = many(a=shared, b=shared, c=(shared, np.arange(3)), function=lambda: shared)
    _, loaded = there(values)
    assert loaded["a"] is loaded["b"] is loaded["c"][0]
    assert loaded["c"][1].tolist() == [0, 1, 2]


def test_a_list_that_holds_itself() -> None:
    knot: list[Any] = []
    knot.append(knot)
    _, loaded = there(many(knot=knot))
    assert loaded["knot"][0] is loaded["knot"]


def test_what_cannot_travel_is_still_named() -> None:
    dump, loaded = there(many(view=[mmap.mmap(-1, 10)], bad=(number for number in range(3))))
    assert set(dump.failed) == {"view", "bad"}
    assert loaded["name_7"] == many()["name_7"]


def test_large_values_and_few_names_go_one_by_one_with_their_own_sizes() -> None:
    assert not presumed_plain({"a": 1}).values
    found = certainly_plain(
        many(large="x" * 900, larger=[f"{n:100}" for n in range(1000)], array=np.arange(3), cls=[object()])
    ).sizes
    assert found is not None
    assert len(found) == 1001
    assert 900 <= found["large"] < 1000
    dump, _ = there(many(large="x" * 900, long=list(range(40_000))))
    assert 900 <= dump.sizes["large"] < 1000
    assert dump.sizes["long"] > 80_000
