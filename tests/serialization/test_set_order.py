"""A set that travels keeps the order of its elements."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable

import pytest

from jupyter_gpu_release.serialization.codec import dump, load
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.serialization.set_order import MOST
from jupyter_gpu_release.serialization.sharing.in_place import update_in_place
from jupyter_gpu_release.unpickling import Trust


def _texts(chance: random.Random, count: int) -> list[str]:
    return [f"{chance.getrandbits(60):x}" for _ in range(count)]


def _added(chance: random.Random, size: int) -> set[object]:
    return set(_texts(chance, size))


def _deleted(chance: random.Random, size: int) -> set[object]:
    words = _texts(chance, chance.randint(2, 9) * size)
    made: set[object] = set(words)
    made.difference_update(words[size:]) if chance.random() < 0.5 else [made.discard(word) for word in words[size:]]
    return made


def _united(chance: random.Random, size: int) -> set[object]:
    return set(_texts(chance, size // 2)) | set(_texts(chance, size - size // 2))


def _mixed(chance: random.Random, size: int) -> set[object]:
    found: list[object] = [chance.getrandbits(40) * 32 for _ in range(size // 2)]
    return {*found, *((word, len(word)) for word in _texts(chance, size - size // 2))}


@pytest.mark.parametrize("make", [_added, _deleted, _united, _mixed])
def test_sets_of_all_histories_keep_their_order(make: Callable[[random.Random, int], set[object]]) -> None:
    chance = random.Random(7)
    sizes = [*range(1, 25), 40, 76, 77, 100, 307, 308, 1000, 5000]
    lost = 0
    for size in sizes:
        made = [make(chance, size) for _ in range(1 if size > 500 else 5)]
        before = list(map(list, made))
        lost += sum(list(pickle.loads(pickle.dumps(each))) != list(each) for each in made)
        written = dump({"made": {"sets": made}, "first": made[0]}, NamespaceInfo({}, at_home=True))
        back = load(written.stream, written.buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN)
        assert list(map(list, back.values["made"]["sets"])) == before
        assert back.values["first"] is back.values["made"]["sets"][0]
        assert "sets" not in back.facts
    assert lost > len(sizes)  # pickle alone does not keep it


def test_a_set_takes_what_came_back_in_its_order() -> None:
    chance = random.Random(8)
    for size in range(1, 100):
        old, new = _added(chance, 3), _deleted(chance, size)
        assert update_in_place(old, new, set())
        assert list(old) == list(new)


def test_a_long_stream_keeps_the_order_of_sets_that_names_hold() -> None:
    made = _added(random.Random(9), MOST)
    written = dump({"made": made, "long": list(map(str, range(400_000)))}, NamespaceInfo({}, at_home=True))
    assert len(written.stream) > 2 << 20
    assert list(
        load(written.stream, written.buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN).values["made"]
    ) == list(made)
