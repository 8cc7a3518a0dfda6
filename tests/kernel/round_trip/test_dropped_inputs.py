"""Objects that a cell changes and then drops: what the table of cells (``tests/cells``) cannot say."""

from __future__ import annotations

from round_trip import Notebook

from jupyter_gpu_release.serialization.codec import LONGEST_COUNTED_BYTES
from tests.cells.dropped import IMPORTS, JOBS


def test_one_that_cannot_be_returned_is_named(nb: Notebook) -> None:
    nb.cell(IMPORTS + JOBS + "todo = list(jobs)")
    end = nb.ok(
        "import threading\nwhile todo:\n    j = todo.pop(); j.done = True\n    if j.n == 1: j.lock = threading.Lock()"
    )
    assert any("a Job that the cell took out of an input is not returned: cannot pickle" in note for note in end.notes)
    assert nb.cell("[j.done for j in jobs]") == [False, True]


def test_what_nothing_else_holds_is_not_sent_back(nb: Notebook) -> None:
    nb.cell(IMPORTS + "x = np.zeros(1 << 17)")
    end = nb.ok("x += 1; x = x[:2].copy()")
    assert end.home_bytes < 1 << 16


_STATES = """
class Basket:
    def __init__(self, items): self.items = items
    def __getstate__(self): return self.items
    def __setstate__(self, items): self.items = list(items)
items = [1]
basket = Basket(items)
kept = {'of': basket, 'attributes': vars(basket)}
"""


def test_what_an_object_gave_as_its_state_is_not_taken_for_a_part(nb: Notebook) -> None:
    """It stays as it was when its object, which made its own of it, changes."""
    nb.cell(_STATES)
    nb.ok("basket.items.append(2)")
    assert nb.cell("basket.items, kept['of'] is basket, kept['attributes'] is vars(basket)") == ([1, 2], True, True)


def test_of_very_many_parts_the_receipt_says_that_they_are_the_old_ones(nb: Notebook) -> None:
    nb.cell(IMPORTS + JOBS + "jobs = [Job(n) for n in range(9000)]; todo = list(jobs); rows = shown = jobs[:]")
    end = nb.ok("while todo: todo.pop().done = True")
    assert end.prepared.total_bytes > LONGEST_COUNTED_BYTES
    assert "parts of `todo` that something else holds, too, are still the old ones there" in end.notes
    nb.ok("rows.append(0)\nrows = []")
    assert nb.cell("len(shown)") == 9001, "an input as a whole is brought home however large it is"


def test_what_only_a_name_holds_ends_in_the_cell_that_deletes_it(nb: Notebook) -> None:
    nb.cell(
        "import weakref\nclass A: pass\na = A(); r, s = weakref.ref(a), weakref.WeakSet([a])\n"
        "d, k = weakref.WeakValueDictionary(k=a), weakref.WeakKeyDictionary({a: 1})"
    )
    nb.ok("del a; n = r() is None, len(s), len(d), len(k)")
    assert nb.ns["n"] == (True, 0, 0, 0)
    assert nb.cell("r() is None, len(s), len(d), len(k)") == (True, 0, 0, 0)


def test_the_del_of_a_deleted_object_runs_once(nb: Notebook) -> None:
    nb.cell("log = []\nclass A:\n    def __del__(self): log.append('end')\na, b = A(), [A()]")
    assert nb.ok("del a; c = len(b)").notes == []
    assert nb.ns["log"] == ["end"]
    assert nb.ok("del b").notes == []
