"""What is saved of an iterator gives the items that are left, on every Python."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from jupyter_gpu_release.node.rank.resuming.places import Places, can_be_saved, is_evaluated, next_number

Make = Callable[[], Iterable[Any]]

_BIG = 1 << 70
_DICT = dict.fromkeys(range(7), "x")
_NUMBERED: dict[str, Make] = {
    "range": lambda: range(7),
    "steps": lambda: range(3, 40, 6),
    "downwards": lambda: range(6, -1, -1),
    "large numbers": lambda: range(_BIG, _BIG + 7),
    "large steps": lambda: range(-_BIG * 3, _BIG * 4, _BIG),
    "reversed range": lambda: reversed(range(7)),
    "reversed large range": lambda: reversed(range(_BIG, _BIG + 7)),
    "enumerate": lambda: enumerate("abcdefg", 3),
    "enumerate with large numbers": lambda: enumerate(range(7), _BIG),
    "enumerate of zip": lambda: enumerate(zip(range(7), "abcdefg", strict=True)),
}
_SAVED: dict[str, Make] = _NUMBERED | {
    "list": lambda: [[n] for n in range(7)],
    "reversed list": lambda: reversed(list("abcdefg")),
    "tuple": lambda: tuple("abcdefg"),
    "str": lambda: "abcdefg",
    "letters beyond ASCII": lambda: "abcdef\u0394",
    "bytes": lambda: b"abcdefg",
    "bytearray": lambda: bytearray(b"abcdefg"),
    "dict": lambda: dict(_DICT),
    "keys": lambda: dict(_DICT).keys(),
    "values": lambda: dict(enumerate("abcdefg")).values(),
    "items": lambda: dict(enumerate("abcdefg")).items(),
    "set": lambda: set(range(7)),
    "frozenset": lambda: frozenset(range(7)),
    "array": lambda: array("d", range(7)),
    "deque": lambda: deque(range(7)),
    "numpy array": lambda: np.arange(7),
    "zip": lambda: zip(range(7), "abcdefgh", dict(_DICT)),  # noqa: B905 - one is longer
}
#: made again by the loop's header, on every Python: no item is drawn and nothing is pickled to find that out
_MADE_AGAIN: dict[str, Make] = {
    "map": lambda: map(abs, range(7)),
    "filter": lambda: filter(None, range(7)),
    "generator": lambda: (n for n in range(7)),
    "reversed dict": lambda: reversed(dict(_DICT)),
    "enumerate of map": lambda: enumerate(map(abs, range(7))),
    "zip with filter": lambda: zip(range(7), filter(None, range(9)), strict=False),
    "memoryview": lambda: memoryview(b"abcdefg"),
    "count": lambda: itertools.count(3),
    "chain": lambda: itertools.chain(range(3), range(4)),
    "product": lambda: itertools.product(range(2), range(4)),
    "islice": lambda: itertools.islice(range(9), 1, 8),
    "pairwise": lambda: itertools.pairwise(range(8)),
    "zip of counts": lambda: zip(range(7), itertools.count(), strict=False),
}


@pytest.fixture(autouse=True)
def _nothing_that_python_will_drop() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def _after(iterable: Iterable[Any], rounds: int) -> Iterator[Any]:
    iterator = iter(iterable)
    for _ in range(rounds):
        next(iterator)
    return iterator


def _saved(iterator: Iterator[Any]) -> Iterator[Any]:
    return Places().return_to(pickle.loads(pickle.dumps(Places().place(iterator))))


@pytest.mark.parametrize("rounds", [0, 1, 4, 7])
@pytest.mark.parametrize("case", _SAVED)
def test_what_is_left_is_saved(case: str, rounds: int) -> None:
    iterator, undisturbed = _after(_SAVED[case](), rounds), _after(_SAVED[case](), rounds)
    assert can_be_saved(iterator)
    again = list(_saved(iterator))
    assert again == list(iterator) == list(undisturbed)
    assert len(again) == 7 - rounds


@pytest.mark.parametrize("case", _MADE_AGAIN)
def test_what_the_header_makes_again_is_left_alone(case: str) -> None:
    iterator = _after(_MADE_AGAIN[case](), 2)
    assert not can_be_saved(iterator)
    assert next_number(iterator) is None or "enumerate" in case
    assert next(iterator) == list(itertools.islice(_MADE_AGAIN[case](), 3))[2]


@pytest.mark.parametrize("rounds", [0, 3, 6])
@pytest.mark.parametrize("case", _NUMBERED)
def test_the_next_number_is_the_next_item(case: str, rounds: int) -> None:
    iterator = _after(_SAVED[case](), rounds)
    number, item = next_number(iterator), next(iterator)
    assert number == (item[0] if isinstance(item, tuple) else item)


@pytest.mark.parametrize("made", [range(2), range(_BIG, _BIG + 2)])
def test_a_range_at_its_end_has_no_next_number(made: range) -> None:
    assert next_number(_after(made, 2)) is None


def test_a_strict_zip_stays_strict() -> None:
    again = _saved(_after(zip(range(3), "ab", strict=True), 1))
    assert next(again) == (1, "b")
    with pytest.raises(ValueError, match="shorter"):
        next(again)


def test_a_list_stays_one_with_the_cells_own_and_grows() -> None:
    names = {"items": [1, 2]}
    iterator = _after(names["items"], 1)
    names, place = pickle.loads(pickle.dumps((names, Places().place(iterator))))
    again = Places().return_to(place)
    names["items"].append(3)
    assert list(again) == [2, 3]
    assert list(copy.copy(iterator)) == [2]


@pytest.mark.parametrize("of", [lambda d: d, dict.values, dict.items, set])
def test_what_changes_its_size_ends_the_loop_as_it_would_have(of: Callable[[Any], Any]) -> None:
    items = of(dict(_DICT))
    changes = items if isinstance(items, set) else None
    iterator = _after(items, 3)
    place = Places().place(iterator)
    again = Places().return_to(place)
    assert next(again) == next(iterator)
    if changes is not None:
        changes.add("more")
    else:
        place[1][0]["more"] = 1
    for each in (iterator, again):
        with pytest.raises(RuntimeError, match="changed size during iteration"):
            next(each)
    with pytest.raises(RuntimeError, match="changed size during iteration"):
        Places().place(iterator)


def test_a_place_of_a_header_is_how_things_were_before_and_the_rounds_of_earlier_attempts_are_left_out() -> None:
    read = np.arange(3, dtype="u1")
    places = Places()
    places.look_from({"lost": [], "buffers": [b"small", read]})
    place = places.place(iter("abcd"))
    assert is_evaluated(place)
    assert not is_evaluated(Places().place(iter("abcd")))
    again = Places()
    again.rounds, again.evaluated = 2, iter("abcd")
    assert list(again.return_to(place)) == ["c", "d"]
    assert again.place(iter("")) == place, "it may be preempted again"
    assert again.lost() == ""
    read[0] = 7
    assert "an array that the loop's header reads has changed" in again.lost()


def test_a_header_that_cannot_be_evaluated_again_says_why() -> None:
    places = Places()
    assert places.lost() == ""
    places.look_from({"lost": ["`lock` of the loop's header: …"]})
    assert places.lost() == "`lock` of the loop's header: …"
    places.look_from({})
    assert places.lost() == "the loop's header does not call resumable() by its name"
