"""Results of a run: what is said where one is asked for that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpu_release.client.results import Results, is_usable, open_stored, open_values, say_lacking
from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import Outcome, RunView, ValueInfo
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store


def test_a_name_that_was_not_made_is_said_with_those_that_were() -> None:
    results = Results("r", "succeeded", {"model": 1, "loss": 2}, [ValueInfo("model", "Net", 1 << 20)])
    assert (results["loss"], list(results), len(results)) == (2, ["model", "loss"], 2)
    assert repr(results) == "<results of run r (succeeded): model (Net, 1 MiB), loss>"
    with pytest.raises(KeyError, match="run r made no `x`; it made model, loss"):
        results["x"]
    with pytest.raises(KeyError, match="it made nothing"):
        Results("r", "failed", {})["x"]


def test_names_that_code_lacks_are_got_by_the_notebook_or_by_the_cell() -> None:
    assert say_lacking("r", ["a", "b"]).endswith("here: `a`, `b` (run the cells of its notebook that define them)")
    assert say_lacking("r", ["a", "b"], in_run=True).endswith("(--in +a sends one along)")


@pytest.mark.parametrize(
    ("state", "gone_at", "values", "usable"),
    [
        ("succeeded", None, Graph(file="v"), True),
        ("running", None, Graph(stream=b"x"), False),
        ("persisting", 1.0, Graph(stream=b"x"), True),
        ("persisting", 1.0, None, True),
        ("persisting", 1.0, Graph(file="v"), False),
    ],
)
def test_values_can_be_used_once_the_lease_is_gone_and_they_are_here(
    state: str, gone_at: float | None, values: Graph | None, usable: bool
) -> None:
    assert is_usable(RunView("r", "ann", state, gone_at=gone_at, outcome=Outcome("ok", values=values))) is usable
    assert not is_usable(RunView("r", "ann", "persisting", gone_at=1.0))


def test_small_values_need_no_store() -> None:
    def find() -> Path:
        raise AssertionError("nobody asks for the store")

    stream, buffers = open_values("r", Graph(stream=b"s", buffers=[b"1"]), find, "the store")
    assert (stream, [bytes(each) for each in buffers]) == (b"s", [b"1"])
    buffers[0][0] = 0  # one's own copy, which can be changed


def test_where_the_store_is_not_mounted_no_cell_is_blamed(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not there") as caught:
        open_stored(new_run_id(), Graph(file="values.graph"), tmp_path, str(tmp_path))
    assert caught.value.hint == "is it mounted?"


def test_a_folder_that_is_not_a_runs_is_not_read(tmp_path: Path) -> None:
    make_store(tmp_path)
    gone, linked, real = new_run_id(), new_run_id(), new_run_id()
    for named, hint in (("the store of the cluster", "JUPYTER_GPU_STORE"), (str(tmp_path), "was it removed there")):
        with pytest.raises(StoreError, match=f"no folder of run {gone}") as caught:
            open_stored(gone, Graph(file="values.graph"), tmp_path, named)
        assert hint in caught.value.hint
    folder = create_run_folder(tmp_path, real).folder
    RunPaths.of(tmp_path, linked).folder.symlink_to(folder)
    with pytest.raises(StoreError, match="symbolic link, which no run's folder is"):
        open_stored(linked, Graph(file="values.graph"), tmp_path, "the store")
