"""Random heaps go to a run and come back: both sides edit them, and all is as if one process had done it.

The notebook and the run are in this process; what goes between them are bytes. A third heap, which gets all edits,
says what is right: which names and parts are one object, which arrays share memory, what they hold.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from soak import sized

from jupyter_gpu_release.kernel.namespace.meanwhile import InputsMeanwhile
from jupyter_gpu_release.node.values.namespace import RankValues
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.serialization.sharing.namespace_update import NamespaceUpdate
from jupyter_gpu_release.serialization.sharing.references import Originals
from jupyter_gpu_release.unpickling import Trust

NAMES = "abcd"


class Thing:
    """An object of the user's."""


Choice = tuple[int, int, int]


@dataclass
class Heap:
    """Names, and what they lead to; edits choose among that by numbers, so that equal heaps take them alike."""

    names: dict[str, Any] = field(default_factory=dict)

    def parts(self) -> list[Any]:
        """All that is reached, each once."""
        found: dict[int, Any] = {}
        waiting = [self.names[name] for name in NAMES if name in self.names]
        while waiting:
            thing = waiting.pop(0)
            if isinstance(thing, tuple):  # one is as good as its equal
                waiting += thing
            elif id(thing) not in found and not isinstance(thing, int | float | str):
                found[id(thing)] = thing
                waiting += _inside(thing)
        return list(found.values())

    def picture(self) -> str:
        """Its content; the same for heaps that nobody can tell apart."""
        parts = self.parts()
        number = {id(thing): place for place, thing in enumerate(parts)}

        def one(thing: Any) -> str:
            if isinstance(thing, tuple):
                return f"({', '.join(map(one, thing))})"
            return f"#{number[id(thing)]}" if id(thing) in number else repr(thing)

        lines = [f"{name} = {one(self.names[name])}" for name in NAMES if name in self.names]
        for place, thing in enumerate(parts):
            inside = repr(thing.tolist()) if isinstance(thing, np.ndarray) else ", ".join(map(one, _inside(thing)))
            lines.append(f"#{place} {type(thing).__name__} {inside}")
        arrays = [thing for thing in parts if isinstance(thing, np.ndarray)]
        shared = [
            (number[id(one)], number[id(other)])
            for one in arrays
            for other in arrays
            if one is not other and np.shares_memory(one, other)
        ]
        return "\n".join([*lines, f"memory: {shared}"])


def _inside(thing: Any) -> list[Any]:
    if isinstance(thing, dict):
        return [each for pair in thing.items() for each in pair]
    if isinstance(thing, list):
        return thing
    if isinstance(thing, set):
        return sorted(thing)
    return [part for pair in vars(thing).items() for part in pair[1:]] if isinstance(thing, Thing) else []


def _chosen(things: list[Any], number: int) -> Any:
    return things[number % len(things)] if things else None


# ----------------------------------------------------------------------------- edits: (kind, which, what)
def make(heap: Heap, edit: Choice) -> None:
    """Bind a name to something new, or to what is there."""
    kind, which, what = edit
    name, part = NAMES[which % len(NAMES)], _chosen(heap.parts(), what)
    made: list[Callable[[], Any]] = [
        lambda: [what],
        lambda: {"k": what},
        lambda: {what, what + 1},
        lambda: np.arange(4.0) + what,
        lambda: np.zeros(200),
        Thing,
        lambda: [part, part],
        lambda: {"p": part, "q": []},
        lambda: (part, what),
        lambda: part,
        lambda: part[1:3] if isinstance(part, np.ndarray) else part,
        lambda: part[::2] if isinstance(part, np.ndarray) else part,
    ]
    heap.names[name] = made[kind % len(made)]()


def change(heap: Heap, edit: Choice, allowed: Callable[[Any], bool] = lambda _thing: True) -> Any:
    """Change one object in place; returns it."""
    kind, which, what = edit
    thing, part = _chosen(heap.parts(), which), _chosen(heap.parts(), what)
    if thing is None or not allowed(thing):
        return None
    value = part if kind % 2 else what
    if isinstance(thing, list):
        [lambda: thing.append(value), thing.clear, lambda: thing.__setitem__(slice(0, 1), [value])][kind % 3]()
    elif isinstance(thing, dict):
        [lambda: thing.update(k=value), lambda: thing.pop("k", None), lambda: thing.update({what: []})][kind % 3]()
    elif isinstance(thing, set):
        thing ^= {what}
    elif isinstance(thing, np.ndarray) and len(thing):
        thing[what % len(thing)] += 1
    elif isinstance(thing, Thing):
        setattr(thing, "pq"[kind // 2 % 2], value)
    return thing


def run_edit(heap: Heap, edit: Choice) -> Any:
    """An edit of a cell: a new name, a dropped one, a change. Returns what it changed in place."""
    kind, which, _ = edit
    if kind % 4 == 0:
        make(heap, (kind // 4, *edit[1:]))
    elif kind % 16 == 1:
        heap.names.pop(NAMES[which % len(NAMES)], None)
    else:
        return change(heap, (kind // 4, *edit[1:]))
    return None


def users_edit(thing: Any, what: int) -> None:
    """An edit of one object, while a run is out."""
    if isinstance(thing, list):
        thing.append(what)
    elif isinstance(thing, dict):
        thing["u"] = what
    elif isinstance(thing, set):
        thing ^= {what}
    elif isinstance(thing, np.ndarray):
        thing[:1] -= 7
    elif isinstance(thing, Thing):
        thing.u = what


def is_touched(thing: Any, touched: list[Any]) -> bool:
    """Tell if it, or memory that it looks at, is among these."""
    is_array = isinstance(thing, np.ndarray)
    return any(
        each is thing or (is_array and isinstance(each, np.ndarray) and np.shares_memory(each, thing))
        for each in touched
    )


# ------------------------------------------------------------------------------------- there and back
class Trip:
    """The names of a notebook in a run."""

    def __init__(self, notebook: Heap) -> None:
        self._home = notebook
        realm = NamespaceInfo(notebook.names, at_home=True)
        self._realm = realm
        names = dict(notebook.names)
        self._sent = codec.dump(names, realm, follow=lambda _name: {}, shared=set(map(id, names.values())))
        assert not self._sent.failed
        self._originals = names
        prepared: Any = types.SimpleNamespace(
            buffers=self._sent.buffers, originals=names, memo=self._sent.memo, stream=self._sent.stream
        )
        self._meanwhile = InputsMeanwhile(prepared, realm)
        self.space: dict[str, Any] = {"__builtins__": __builtins__}
        buffers = [bytes(each) for each in self._sent.buffers]
        self._rank = RankValues(self.space, CellPayload(source=""), self._sent.stream, buffers, has_gpu=False)
        self._rank.load()

    def come_home(self) -> tuple[list[str], list[str]]:
        """Bind what came; returns names that were changed on both sides, and the receipt's notes."""
        home = self._rank.collect()
        memo = self._sent.memo
        sent = Originals(self._originals, lambda: dict(memo.values()), in_turn=False)
        buffers = [bytes(each) for each in home.buffers]
        loaded = codec.load(home.stream, buffers, self._realm, sent.find, trust=Trust.OWN)
        names, stay = self._meanwhile.changed(loaded.facts)
        for name in names:
            loaded.values.pop(name, None)
        NamespaceUpdate(self._home.names, loaded, self._originals, memo, stay=stay).bind()
        return names, home.notes


CHOICES = st.tuples(st.integers(0, 200), st.integers(0, 60), st.integers(0, 60))
BUILDS = st.lists(CHOICES, min_size=2, max_size=12)
EDITS = st.lists(CHOICES, max_size=8)
_SETTINGS = settings(
    max_examples=sized(60, 50_000),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # to shrink one takes minutes
    database=None,
)
pytestmark = pytest.mark.timeout(sized(240, 7200))


def _built(builds: list[Choice]) -> Heap:
    heap = Heap()
    for edit in builds:
        (make if edit[0] % 3 else change)(heap, (edit[0] // 3, *edit[1:]))
    return heap


@given(BUILDS, EDITS)
@_SETTINGS
def test_what_a_run_does_is_as_if_it_had_been_done_here(builds: list[Choice], edits: list[Choice]) -> None:
    notebook, right = _built(builds), _built(builds)
    assert notebook.picture() == right.picture()
    trip = Trip(notebook)
    there = Heap(trip.space)
    assert there.picture() == right.picture()
    for edit in edits:
        run_edit(there, edit)
        run_edit(right, edit)
    assert there.picture() == right.picture()
    trip.come_home()
    assert notebook.picture() == right.picture()


@given(BUILDS, EDITS, EDITS)
@_SETTINGS
def test_what_the_user_changes_meanwhile_stays(builds: list[Choice], edits: list[Choice], own: list[Choice]) -> None:
    notebook, right = _built(builds), _built(builds)
    trip = Trip(notebook)
    there = Heap(trip.space)
    here, arrived, wanted = notebook.parts(), there.parts(), right.parts()
    touched = []
    for edit in edits:
        touched.append(run_edit(there, edit))
        run_edit(right, edit)
    for _, which, what in own:
        place = which % max(1, len(here))
        if here and not is_touched(arrived[place], touched):
            users_edit(here[place], what)
            users_edit(wanted[place], what)
    assert trip.come_home()[0] == []
    assert notebook.picture() == right.picture()
