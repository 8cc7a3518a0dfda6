"""Callbacks of weak references: called in the notebook, once."""

from __future__ import annotations

import pytest
from round_trip import Notebook

SETUP = (
    "import weakref\nlog = []\nclass A: n = 0\ndef gone(_): log.append('gone')\n"
    "class Closed(A):\n    def __init__(self): weakref.finalize(self, log.append, 'closed')\n"
)


@pytest.mark.parametrize("kind", ["ref", "proxy"])
def test_a_callback_is_called_once_when_its_target_ends(nb: Notebook, kind: str) -> None:
    nb.cell(f"{SETUP}a, b = A(), A(); box = [weakref.{kind}(a, gone)]")
    assert nb.ok(f"a.n += 1; box.append(weakref.{kind}(b, lambda _: log.append('b')))").notes == []
    assert nb.ns["log"] == []
    nb.cell("del a")
    nb.cell("del b")
    assert nb.ns["log"] == ["gone", "b"]


def test_the_callback_of_what_ends_in_the_cell_is_called_in_the_notebook_and_the_receipt_says_so(nb: Notebook) -> None:
    nb.cell(f"{SETUP}a = A(); r = weakref.ref(a, gone); box = [r]")
    trip = nb.ok("del a; ended, called = box[0]() is None, list(log); box.append(1)")
    assert trip.notes == ["a weak reference's callback is not called in the cell: its target ends in the notebook"]
    del trip
    assert nb.cell("ended, called, log, r(), box[0] is r") == (True, [], ["gone"], None, True)


def test_a_callback_that_cannot_be_sent_is_named(nb: Notebook) -> None:
    nb.cell(
        f"{SETUP}import threading\nlock = threading.Lock(); a = A()\nr = weakref.ref(a, lambda _, lock=lock: gone(_))"
    )
    (note,) = nb.ok("a.n += 1; same = r() is a").prepared.notes
    assert note == "`r` was sent without the callback of a weak reference, which cannot be sent"
    nb.cell("del a")
    assert nb.cell("same, log") == (True, ["gone"])


def test_an_object_whose_callback_is_the_users_lives_as_long_as_the_one_in_its_place(nb: Notebook) -> None:
    nb.cell(f"{SETUP}import numpy as np\na = np.arange(6); box = [weakref.ref(a, gone)]; weakref.finalize(a, gone, 0)")
    (note,) = nb.ok("a.dtype = 'u8'").notes
    assert note.startswith("an object of `ndarray` is another one now; the old one lives as long")
    assert nb.ns["log"] == []
    nb.cell("del a")
    assert nb.cell("log, box[0]()") == (["gone", "gone"], None)


def test_a_finalizer_that_nothing_leads_to_is_the_notebooks_or_named(nb: Notebook) -> None:
    nb.cell(f"{SETUP}a, b = Closed(), Closed()")
    assert nb.ok("a.n += 1; del b").notes == []
    assert nb.ns["log"] == ["closed"]
    nb.cell("del a")
    assert nb.ns["log"] == ["closed", "closed"]
    trip = nb.ok("c = Closed()")
    assert trip.notes == [
        "an object of `Closed` came back without its `weakref.finalize`, which is over with the cell's process"
    ]


def test_where_nobody_counts_who_holds_an_object_its_del_runs_in_both_places_and_is_named(nb: Notebook) -> None:
    nb.cell(
        "log = []\nclass A:\n    def __del__(self): log.append(1)\n"
        "items = [A(), A()]; pad = [str(i) * 40 for i in range(9000)]"
    )
    trip = nb.ok("n = len(pad); del items[0]")
    assert trip.notes == ["`A.__del__` ran in the cell, and runs here, too, if its object ends here"]
    del trip
    assert nb.ns["log"] == [1, 1]
    nb.cell("items.clear()")
