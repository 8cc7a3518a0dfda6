"""What a rank holds of its inputs, so that it can say which of its objects are the notebook's: only what is light."""

from __future__ import annotations

import collections
import enum
import types
from dataclasses import dataclass
from typing import Any

import pytest

from jupyter_gpu_release.node.values.changes import light_among


class Heavy:
    """Holds whatever it likes."""


class Colour(enum.Enum):
    RED = 1


@dataclass(slots=True)
class Node:
    value: Any
    next: Any = None


class Several(Node):
    """With room for attributes, so it takes weak references."""


def is_light(thing: Any, *others: Any) -> bool:
    return id(thing) in light_among([thing, *others])


@pytest.mark.parametrize(
    "thing",
    [
        object(),
        [1, "a", (2, None)],
        {"a": 1},
        bytearray(b"abc"),
        collections.defaultdict(int, a=1),
        collections.defaultdict(lambda: 0),
        types.SimpleNamespace(a=1),
        Node(1),
        Node(Colour.RED, int),
    ],
)
def test_light(thing: Any) -> None:
    assert is_light(thing)


@pytest.mark.parametrize(
    "thing",
    [
        [Heavy()],
        {"a": Heavy()},
        {Heavy(): 1},
        bytearray(1 << 20),
        [0] * 20_000,
        collections.defaultdict(int, a=Heavy()),
        collections.defaultdict(Heavy().__init__),
        types.SimpleNamespace(a=Heavy()),
        Node(Heavy()),
        iter([Heavy()]),
        Several(1),
        {1, 2},
        Heavy(),
        5,
        "a",
        (1, 2),
        Heavy,
    ],
)
def test_neither_heavy_nor_held_otherwise(thing: Any) -> None:
    assert not is_light(thing)


def test_what_holds_something_heavy_is_heavy_up_to_the_top() -> None:
    light, heavy = Node(1), Node(Heavy())
    inner = [light, heavy]
    top = {"inner": inner, "other": [light]}
    known = light_among([top, inner, heavy, heavy.value, light, top["other"]])
    assert known == {id(light), id(top["other"])}


def test_a_ring_is_light_unless_something_heavy_is_in_it() -> None:
    first, second = Node(1), Node(2)
    first.next, second.next = second, first
    assert light_among([first, second]) == {id(first), id(second)}
    second.value = Heavy()
    assert light_among([first, second]) == set()
