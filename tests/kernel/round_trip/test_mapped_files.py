"""``np.memmap`` is a file in a GPU cell, too: what is written there is in the file."""

from __future__ import annotations

import numpy as np
import pytest
from optional_libraries import torch
from round_trip import Notebook

from jupyter_gpu_release.adapters.numpy import mapped_files
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust

MAKE = "import numpy as np\nm = np.memmap('data.bin', dtype='f4', mode='w+', shape=(1000, 500))\nm[:] = 1\n"


def in_file() -> np.ndarray:
    return np.fromfile("data.bin", dtype="f4").reshape(1000, 500)


def test_what_the_cell_writes_is_in_the_file_and_in_the_notebooks_own_map(nb: Notebook) -> None:
    nb.cell(MAKE)
    own = nb.ns["m"]
    trip = nb.ok("m[3] = 7\nkind = type(m).__name__, m.mode, m.offset")
    assert nb.ns["m"] is own
    assert nb.ns["kind"] == ("memmap", "w+", 0)
    assert (own[3] == 7).all()
    assert (in_file()[3] == 7).all()
    own[4, 0] = 8
    own.flush()
    assert in_file()[4, 0] == 8
    assert trip.home_bytes < 50_000


def test_its_views_are_views_of_the_file(nb: Notebook) -> None:
    nb.cell(MAKE + "some = m[2:4]\nplain = np.asarray(m)[10:12]\nturned = m.T\ndel m")
    before = {name: nb.ns[name] for name in ("some", "plain", "turned")}
    assert nb.collect("some").total_bytes < 50_000
    nb.ok(
        "some[0, 0] = 2\nplain[1, 1] = 3\nturned[5, 6] = 4\nkinds = [type(x).__name__ for x in (some, plain, turned)]"
    )
    assert all(nb.ns[name] is before[name] for name in before)
    assert (in_file()[2, 0], in_file()[11, 1], in_file()[6, 5]) == (2, 3, 4)
    assert nb.ns["kinds"] == ["memmap", "ndarray", "memmap"]


def test_one_that_the_cell_makes_comes_home_as_the_file(nb: Notebook) -> None:
    trip = nb.ok(MAKE + "part = m[1:3]\nr = np.memmap('data.bin', dtype='f4', mode='r', offset=2000, shape=(10,))")
    part, read = nb.ns["part"], nb.ns["r"]
    assert trip.home_bytes < 50_000
    part[0, 0] = 5
    nb.ns["m"].flush()
    assert (in_file()[1, 0], read[0]) == (5, 5)  # 2000 bytes are a row of 500
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 1


def test_private_changes_travel_as_values(nb: Notebook) -> None:
    nb.cell(MAKE + "m.flush()\nc = np.memmap('data.bin', dtype='f4', mode='c', shape=(1000, 500))\nc[0] = 9")
    nb.ok("seen = float(c[0, 0]), float(c[1, 0])\nc[1] = 10")
    assert nb.ns["seen"] == (9, 1)
    assert nb.ns["c"][1, 0] == 10
    assert in_file()[:2, 0].tolist() == [1, 1]


def test_a_file_that_is_gone_is_said_and_its_values_travel(nb: Notebook) -> None:
    nb.cell(MAKE + "import os\nos.remove('data.bin')")
    trip = nb.ok("seen = float(m[0, 0])")
    assert nb.ns["seen"] == 1
    assert any("`m` was sent as a copy: the file that it maps is gone" in note for note in trip.prepared.notes)


def test_a_file_that_the_node_does_not_see_is_an_error_before_the_cell_runs(
    nb: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    nb.cell(MAKE)
    facts = mapped_files._facts_of
    elsewhere = lambda root, must_flush: ("/nowhere/data.bin", *facts(root, must_flush=must_flush)[1:])  # noqa: E731
    monkeypatch.setattr(mapped_files, "_facts_of", elsewhere)
    trip = nb.gpu("ran = m.shape")
    assert (
        "`m` cannot be rebuilt on the node: it maps the file /nowhere/data.bin, which cannot be opened here"
        in trip.error
    )
    assert "under the same path, or send its values: np.array(…)" in trip.error
    assert "ran" not in nb.ns


TENSORS = """
import numpy as np, torch
np.arange(1000.0).tofile("tensors.bin")
mapped = np.memmap("tensors.bin", dtype="f8", mode="r+", shape=(1000,))
ours = torch.from_numpy(mapped[3:])
shared = torch.from_file("tensors.bin", shared=True, size=1000, dtype=torch.float64)
alone = torch.from_file("tensors.bin", shared=False, size=1000, dtype=torch.float64)
in_memory = torch.zeros(5).share_memory_()
"""


def test_a_tensor_over_a_file_is_that_file_in_a_gpu_cell(nb: Notebook) -> None:
    nb.cell(TENSORS)
    trip = nb.ok(
        "ours[0], shared[1] = 50, 60\nthere = np.fromfile('tensors.bin')[[1, 3]].tolist()\n"
        "held, part = [ours], shared[2:]\n"
        "made = torch.from_file('tensors.bin', shared=True, size=10, dtype=torch.float64)"
    )
    assert trip.notes == []
    assert nb.ns["there"] == [60.0, 50.0]
    assert [info.bytes < 1000 for info in trip.prepared.sent] == [True] * len(trip.prepared.sent)
    assert nb.cell("mapped[1], ours[0].item(), shared[3].item()") == (60.0, 50.0, 50.0)
    assert nb.cell("held[0] is ours, part.data_ptr() == shared[2:].data_ptr()") == (True, True)
    nb.cell("made[9] = 90")
    assert nb.cell("mapped[9]") == 90.0
    nb.ok("alone[0] = 7\nin_memory[0] = 8")
    assert nb.cell("mapped[0], alone[0].item(), in_memory[0].item()") == (0.0, 7.0, 8.0)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_tensor_over_a_file_that_is_only_read_travels_by_its_values(nb: Notebook) -> None:
    nb.cell(TENSORS + "ours[:] = 3\nread = torch.from_numpy(np.memmap('tensors.bin', mode='r', dtype='f8'))")
    sizes = {info.name: info.bytes for info in nb.collect("read, ours").sent}
    assert sizes["ours"] < 1000
    assert sizes["read"] > 8000
    nb.ok(
        "seen, kept = read[[0, 5]].tolist(), read * 1\nimport os\nos.truncate('tensors.bin', 8)\nlast = float(read[-1])"
    )
    assert (nb.ns["seen"], nb.ns["last"]) == ([0.0, 3.0], 3.0)


def test_a_tensor_that_came_with_a_cell_is_looked_for_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read what a process maps takes 5 ms, and each input is written down twice: before the cell and after it."""
    sent = codec.dump({"own": torch.arange(1000.0), "model": torch.nn.Linear(3, 3)}, NamespaceInfo({}, at_home=True))
    rank = NamespaceInfo({}, at_home=False)
    there = codec.load(sent.stream, [bytes(part) for part in sent.buffers], rank, trust=Trust.OWN).values
    monkeypatch.delattr(mapped_files, "mapped_memory")
    again = codec.dump(there, rank)
    home = codec.load(again.stream, again.buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN).values
    assert torch.equal(home["own"], torch.arange(1000.0))
