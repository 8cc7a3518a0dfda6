"""Shallow states: an object is what its reducer gives, with numbers in place of the objects that it holds."""

from __future__ import annotations

import collections
import copy
import copyreg
import io
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from jupyter_gpu_release.exchange.shallow import Heap, read_heap
from jupyter_gpu_release.exchange.verdicts import Verdicts, compare
from jupyter_gpu_release.serialization.pickler import GraphPickler
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo


class Thing:
    """Holds what it is given."""

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


class Momentary:
    """Its state is made anew for each that asks."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def __getstate__(self) -> dict[str, Any]:
        return {"part": self.part, "beside": [[1], {"k": 2}]}


class Met:
    """Is met once more while its own arguments are taken apart."""

    def __reduce__(self) -> Any:
        return Met.made, (self.part,)

    @staticmethod
    def made(part: Any) -> Met:
        """One that holds this."""
        made = Met()
        made.part = part
        return made

    part: Any = None


class Heaps:
    """Reads values in which ``things`` have numbers: their places in the list."""

    def __init__(self, *things: Any) -> None:
        self.things = list(things)

    def read(self, value: Any) -> Heap:
        """The shallow state of ``value`` now."""
        buffers: list[Any] = []
        file = io.BytesIO()
        pickler = GraphPickler(file, NamespaceInfo({}, at_home=False), buffers, compact=True)
        pickler.dump(value)
        number_of = {id(thing): number for number, thing in enumerate(self.things)}
        places = {place: number_of.get(ident) for ident, (place, _) in pickler.memo.copy().items()}
        return read_heap(file.getvalue(), [bytes(each) for each in buffers], places.get)

    def after(self, value: Any, edit: Callable[[], None]) -> Verdicts:
        """Verdicts on ``value`` after an edit."""
        before = self.read(value)
        edit()
        return compare([before], [self.read(value)])


def test_only_the_changed_object_has_changed_and_all_that_lead_to_it_are_apart() -> None:
    inner, other = [1], [2]
    middle = {"inner": inner}
    outer = Thing(middle=middle, other=other)
    found = Heaps(inner, other, middle, outer).after({"outer": outer}, lambda: inner.append(3))
    assert (found.changed, found.apart) == ({0}, {0, 2, 3})
    assert found.kept - found.apart == {1}
    assert Heaps(other, inner).after(other, lambda: other.append(inner)).changed == {0, 1}, "it was not there before"


@pytest.mark.parametrize(
    ("value", "equal"),
    [
        (1, True),
        (0.0, -0.0),
        (1, 1.0),
        ("1", 1),
        ((1, 2), (2, 1)),
        ({1, 2}, {1, 3}),
        (b"a", "a"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_values_that_python_calls_equal_are_told_apart(value: Any, equal: Any) -> None:
    box = [value]
    heaps = Heaps(box)
    assert heaps.after(box, lambda: box.__setitem__(0, copy.deepcopy(value))).changed == set()
    assert heaps.after(box, lambda: box.__setitem__(0, equal)).changed == {0}


def test_nan_is_nan() -> None:
    box = [math.nan]
    assert Heaps(box).after(box, lambda: box.__setitem__(0, float("nan"))).changed == set()


def test_what_taking_apart_makes_for_the_moment_is_compared_by_content() -> None:
    part = [1]
    box = {"momentary": Momentary(part)}
    heaps = Heaps(part, box, box["momentary"])
    assert heaps.after(box, lambda: None).changed == set()
    assert heaps.after(box, lambda: part.append(2)).changed == {0}
    assert heaps.after(box, lambda: setattr(box["momentary"], "part", [1, 2])).changed == {2}


def test_an_equal_object_in_a_parts_place_changes_its_holder_alone() -> None:
    log = [1]
    box = {"log": log}
    assert Heaps(box, log).after(box, lambda: box.__setitem__("log", [1])).changed == {0}


def test_cycles() -> None:
    one, other = Thing(), Thing()
    one.other, other.other = other, one
    ring: list[Any] = []
    ring.append((ring, one))
    heaps = Heaps(one, other, ring)
    assert heaps.after(ring, lambda: None).apart == set()
    assert heaps.after(ring, lambda: setattr(one, "n", 1)).changed == {0}
    met = Met()
    met.part = [met, 1]
    assert Heaps(met.part).after(met, lambda: met.part.append(2)).changed == {0}
    momentary = Momentary(None)
    momentary.part = [momentary]
    assert Heaps().read([momentary]).root is not None


def test_a_view_has_not_changed_with_its_memory() -> None:
    memory = np.zeros(1000)
    box = {"memory": memory, "view": memory[10:20]}
    found = Heaps(box, memory, box["view"]).after(box, lambda: memory.__setitem__(15, 1))
    assert (found.changed, found.apart) == ({1}, {0, 1, 2})


def test_tensors_that_part_with_their_shared_memory_have_changed() -> None:
    torch = pytest.importorskip("torch")
    one = torch.zeros(10)
    other = one.view(2, 5)
    box = [one, other]
    heaps = Heaps(box, one, other)
    assert heaps.after(box, lambda: None).changed == set()
    state = heaps.read(box)
    assert compare([state], [state], also_apart=[1]).apart == {0, 1, 2}, "what shares with it, too"
    assert heaps.after(box, lambda: one.add_(1)).changed == {1, 2}
    assert heaps.after(box, lambda: setattr(other, "data", other.data.clone())).changed == {1, 2}


@pytest.mark.parametrize(
    ("make", "edit"),
    [
        (lambda: collections.deque([1], maxlen=4), lambda each: each.append(2)),
        (lambda: collections.OrderedDict(a=1, b=2), lambda each: each.move_to_end("a")),
        (lambda: collections.defaultdict(list, a=1), lambda each: each["b"]),
        (lambda: bytearray(b"ab"), lambda each: each.__setitem__(0, 1)),
        (lambda: bytearray(1000), lambda each: each.__setitem__(0, 1)),
        (lambda: {1, 2}, lambda each: each.add(3)),
        (lambda: np.zeros(3), lambda each: each.fill(1)),
        (lambda: np.zeros(3000)[1:], lambda each: each.fill(1)),
        (lambda: np.ma.masked_array([1.0, 2], [0, 1]), lambda each: each.mask.__setitem__(0, True)),
        (lambda: Thing(a=1), lambda each: vars(each).clear()),
        (lambda: np.random.default_rng(0), lambda each: each.random()),
    ],
)
def test_each_kind(make: Any, edit: Any) -> None:
    thing = make()
    box = [thing]
    assert Heaps(box, thing).after(box, lambda: None).changed == set()
    assert Heaps(box, thing).after(box, lambda: edit(thing)).changed == {1}


@pytest.fixture
def numbered() -> Iterator[list[object]]:
    """``_note`` has a number in pickles; the list: what it was called with."""
    copyreg.add_extension(__name__, "_note", _CODE)
    yield _noted
    copyreg.remove_extension(__name__, "_note", _CODE)
    copyreg.clear_extension_cache()
    _noted.clear()


_CODE = 250
_noted: list[object] = []


def _note(*arguments: object) -> None:
    _noted.append(arguments)


_EXTENSION = pickle.EXT1 + bytes([_CODE])
_CALLS = {
    "object": pickle.MARK + _EXTENSION + pickle.NONE + pickle.OBJ + pickle.STOP,
    "instance": pickle.MARK + pickle.NONE + pickle.INST + f"{__name__}\n_note\n".encode() + pickle.STOP,
    "call": _EXTENSION + pickle.NONE + pickle.TUPLE1 + pickle.REDUCE + pickle.STOP,
    "new": _EXTENSION + pickle.NONE + pickle.TUPLE1 + pickle.NEWOBJ + pickle.STOP,
    "state": _EXTENSION + pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.NONE + pickle.BUILD + pickle.STOP,
}


@pytest.mark.parametrize("stream", _CALLS.values(), ids=_CALLS)
def test_nothing_that_a_pickle_names_is_called(numbered: list[object], stream: bytes) -> None:
    """Also where Python knows already what a number stands for. No pickler writes the first two any more."""
    assert pickle.loads(_EXTENSION + pickle.STOP) is _note
    read_heap(stream, [], lambda _place: None)
    assert numbered == []


def test_what_has_a_number_stays_what_it_is_for_others_that_read(numbered: list[object]) -> None:
    stream = pickle.dumps(_note)
    assert _EXTENSION in stream
    read_heap(stream, [], lambda _place: None)
    assert pickle.loads(stream) is _note
