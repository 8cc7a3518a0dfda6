"""Classes made from generators of random numbers, and exception groups, stay themselves."""

from __future__ import annotations

import pytest
from round_trip import Notebook

_MAKES = {
    "RandomState": "class Mine(np.random.RandomState):\n    def two(self): return self.rand() * 2\nmine = Mine(4)\n",
    "Generator": (
        "class Mine(np.random.Generator):\n    def two(self): return self.random() * 2\n"
        "mine = Mine(np.random.PCG64(4))\n"
    ),
}


@pytest.mark.parametrize("make", list(_MAKES))
@pytest.mark.parametrize("is_made_there", [False, True])
def test_a_class_made_from_numpys_generators_travels(nb: Notebook, make: str, is_made_there: bool) -> None:
    source = f"import numpy as np\n{_MAKES[make]}mine.note = 'x'\nbox = [mine]\n_ = mine.standard_normal()"
    plain: dict[str, object] = {"__name__": "__main__"}
    exec(source, plain)
    (nb.ok if is_made_there else nb.cell)(source)
    mine = nb.ns["mine"]
    draw = "seen = mine.two(), mine.standard_normal(), mine.note, type(mine) is Mine, box[0] is mine\nmine.note += '!'"
    for _ in range(2):
        exec(draw, plain)
        nb.ok(draw)
        assert nb.ns["seen"] == plain["seen"]
    exec(draw, plain)
    nb.cell(draw)
    assert nb.ns["seen"] == plain["seen"]
    assert nb.ns["mine"] is mine


def test_a_group_whose_class_takes_more_than_pythons_own_travels(nb: Notebook) -> None:
    nb.cell(
        "class Failed(ExceptionGroup):\n    def __new__(cls, text, errors, code=1):\n"
        "        made = super().__new__(cls, text, errors)\n        made.code = code\n        return made\n"
        "    def derive(self, errors): return Failed(self.message, errors, self.code)\n"
        "failed = Failed('both', [ValueError(1), KeyError('k')], 7)"
    )
    nb.ok(
        "seen = failed.code, failed.message, failed.split(KeyError)[0].code\nother = Failed('one', [ValueError(2)], 8)"
    )
    assert nb.ns["seen"] == (7, "both", 7)
    other = nb.ns["other"]
    assert (type(other) is nb.ns["Failed"], other.code, repr(other.exceptions)) == (True, 8, "(ValueError(2),)")


def test_the_global_generator_may_have_other_bits(nb: Notebook) -> None:
    first = "import numpy as np\nnp.random.set_bit_generator(np.random.PCG64(5))\na = np.random.rand()"
    draw = "b = np.random.rand(), type(np.random.get_bit_generator()).__name__"
    plain: dict[str, object] = {"__name__": "__main__"}
    for source in (first, draw):
        exec(source, plain)
    expected, later = plain["b"], eval("np.random.rand()", plain)
    try:
        nb.cell(first)
        nb.ok(draw)
        assert nb.ns["b"] == expected == (expected[0], "PCG64")  # type: ignore[index]
        assert nb.cell("np.random.rand()") == later
        nb.ok("np.random.set_bit_generator(np.random.SFC64(5))")
        assert nb.cell("type(np.random.get_bit_generator()).__name__") == "SFC64"
    finally:
        nb.cell("np.random.set_bit_generator(np.random.MT19937(5))")
