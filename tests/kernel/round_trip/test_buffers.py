"""Python's own buffers and the arrays, tensors and memoryviews over them: a write is seen through all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optional_libraries import skip_without
from round_trip import Notebook

_MAKES = {
    "bytearray": "buffer = bytearray(range(16)); view = np.frombuffer(buffer, 'u1')",
    "part": "buffer = bytearray(range(16)); view = np.frombuffer(buffer, 'u1', offset=4)",
    "ndarray": "buffer = bytearray(range(16)); view = np.ndarray((4, 4), 'u1', buffer=buffer)[1]",
    "array": "import array; buffer = array.array('d', range(8)); view = np.asarray(buffer)",
    "ctypes": "import ctypes; buffer = (ctypes.c_double * 8)(*range(8)); view = np.ctypeslib.as_array(buffer)",
    "pointer": (
        "import ctypes; buffer = (ctypes.c_double * 8)(*range(8)); "
        "view = np.ctypeslib.as_array(ctypes.cast(buffer, ctypes.POINTER(ctypes.c_double)), (8,))"
    ),
    "from_buffer": "import ctypes; buffer = bytearray(16); view = (ctypes.c_uint8 * 16).from_buffer(buffer)",
    "memoryview": "buffer = bytearray(range(16)); view = memoryview(buffer)",
    "memoryview of an array": "buffer = np.arange(8.0); view = memoryview(buffer)",
    "tensor": "buffer = bytearray(range(16)); view = torch.frombuffer(buffer, dtype=torch.uint8)",
    "tensor over an array": "buffer = np.zeros(1 << 18); view = torch.from_numpy(buffer)",
    "small part of a tensor": "buffer = np.zeros(1 << 18); view = torch.from_numpy(buffer)[:16]",
    "small part": "buffer = bytearray(1 << 20); view = np.frombuffer(buffer, 'u1')[:16]",
    "two": "hidden = bytearray(16); buffer = np.frombuffer(hidden, 'u1'); view = np.frombuffer(hidden, 'u1')",
}
_CELLS = (
    "view[1] += 1",
    "buffer[6] += 1",
    "view[1] += 1; buffer[6] += 1; seen = view[2], buffer[1], view[3], buffer[2]",
)


def _state(ns: dict[str, Any]) -> list[Any]:
    buffer, view = ns["buffer"], ns["view"]
    found = []
    for change in (None, view, buffer):
        if change is not None:
            change[2] = change[2] + 3
        found += [[float(each) for each in list(thing[:16])] for thing in (buffer, view)]
    return found


@pytest.mark.parametrize("cell", _CELLS)
@pytest.mark.parametrize("make", list(_MAKES))
def test_a_write_is_seen_through_a_buffer_and_what_looks_at_it(nb: Notebook, make: str, cell: str) -> None:
    first = "import numpy as np\n" + ("import torch\n" if "torch" in _MAKES[make] else "") + _MAKES[make]
    skip_without(first)
    plain: dict[str, Any] = {"__name__": "__main__"}
    exec(first, plain)
    exec(cell, plain)
    nb.cell(first)
    were = nb.ns["buffer"], nb.ns["view"]
    nb.ok(cell)
    assert _state(nb.ns) == _state(plain)
    assert (nb.ns["buffer"], nb.ns["view"])[0] is were[0]
    assert nb.ns["view"] is were[1]
    exec(cell, plain)
    nb.ok(cell)  # once more, of what came home
    assert _state(nb.ns) == _state(plain)
    assert [float(each) for each in nb.ns.get("seen", ())] == [float(each) for each in plain.get("seen", ())]


def test_buffers_that_a_cell_makes_come_home_with_what_looks_at_them(nb: Notebook) -> None:
    nb.ok(
        "import numpy as np\nbuffer = bytearray(16)\nview = np.frombuffer(buffer, 'u1')\n"
        "box = {'b': buffer, 'v': view[4:]}"
    )
    nb.ns["buffer"][5] = 7
    assert (nb.ns["view"][5], nb.ns["box"]["v"][1]) == (7, 7)
    nb.ok("box['b'][6] = 8")
    assert (nb.ns["view"][6], nb.ns["box"]["v"][2], nb.ns["buffer"][6]) == (8, 8, 8)


@pytest.mark.parametrize("size", [4, 100, 1000, 1 << 18])
def test_an_array_that_came_here_is_one_as_before(nb: Notebook, size: int) -> None:
    """Its memory is a bytearray, too, where it was read from a stream."""
    nb.ok(f"import numpy as np\nown = np.arange({size}.0)\ntimes = np.zeros({size}, 'M8[s]')\nown[0] = 1")
    for number in range(2, 4):
        trip = nb.ok(f"own[0] += 1\ntimes[1] = {number}")
        assert (nb.ns["own"][0], nb.ns["times"][1].astype(int)) == (number, number)
        assert b"over_buffer" not in trip.prepared.stream + trip.graph[0]
    assert np.shares_memory(nb.ns["own"], nb.ns["own"][:1])


@pytest.mark.parametrize(
    "make",
    [
        "buffer = bytearray(8); view = np.frombuffer(buffer, 'u1')",
        "buffer = bytearray(8); view = memoryview(buffer)",
        "buffer = np.zeros(8); view = torch.from_numpy(buffer)",
    ],
)
@pytest.mark.parametrize("names", [("view", "buffer"), ("buffer", "view")])
def test_what_a_user_wrote_meanwhile_through_the_one_stays_although_the_run_changed_the_other(
    nb: Notebook, make: str, names: tuple[str, str]
) -> None:
    nb.cell("import numpy as np\n" + ("import torch\n" if "torch" in make else "") + make)
    trip = nb.gpu(f"{names[0]}[1] = 5", meanwhile=f"{names[1]}[3] = 9")
    for name in names:
        assert [int(each) for each in nb.ns[name]] == [0, 0, 0, 9, 0, 0, 0, 0]
    assert f"`{names[0]}` was changed here meanwhile, and by the run" in " ".join(trip.notes)
