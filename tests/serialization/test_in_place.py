"""Objects of odd classes: what their code does keeps nothing else from being brought up to date."""

from __future__ import annotations

from typing import Any, ClassVar

from jupyter_gpu_release.serialization.sharing.held_elsewhere import held_elsewhere
from jupyter_gpu_release.serialization.sharing.in_place import update_in_place


class Once:
    """Can be pickled, but not at any time."""

    def __init__(self, n: int) -> None:
        self.n, self.cache = n, [n]

    def __getstate__(self) -> dict[str, Any]:
        raise RuntimeError("not now")


def test_an_object_whose_state_cannot_be_asked_for():
    old, new = Once(1), Once(2)
    del new.cache
    assert update_in_place(old, new, set())
    assert (old.n, old.cache) == (2, [1])


def test_a_class_without_a_module():
    kind = type("Nowhere", (list,), {"__slots__": ()})
    kind.__module__ = None  # type: ignore[assignment]
    thing = kind([1])
    memo = {id(thing): (1, thing)}
    for every_kind in (False, True):
        assert held_elsewhere(memo, but=(), every_kind=every_kind) in ([], [1])
    assert update_in_place(thing, kind([2]), set())
    assert thing == [2]


class Shared:
    """All of them have the same attributes."""

    _all: ClassVar[dict[str, Any]] = {}

    def __new__(cls) -> Any:
        made = super().__new__(cls)
        made.__dict__ = cls._all
        return made


def test_objects_with_the_same_attributes_keep_them():
    old, new = Shared(), Shared()
    new.n = 1
    assert update_in_place(old, new, set())
    assert (old.n, new.n) == (1, 1)
