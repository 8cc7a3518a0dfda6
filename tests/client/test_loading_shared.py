"""Results in a store that a group shares: any member can have written them, and the manifest that speaks of them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.cell_api.context import ExecutionContext
from jupyter_gpu_release.client import loading as client_load
from jupyter_gpu_release.client import results as client_results
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.errors import ForbiddenError, GatewayUnavailableError, StoreError
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store import ownership
from jupyter_gpu_release.store.files import SHARED_FOLDER
from jupyter_gpu_release.store.graph_file import write_graph
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, write_manifest

RUN = "20260101-000000-00000001"


class Trap:
    """Writes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.write_text, (self.path, "unpickled")


def _dumped(value: Any) -> codec.Dump:
    return codec.dump({"x": value}, NamespaceInfo({}, at_home=True))


def _write(store: Path, value: Any) -> tuple[RunPaths, Graph]:
    """A run's results and its manifest, as nodes write them, or a member of the group does."""
    paths, dump = create_run_folder(store, RUN), _dumped(value)
    digest = write_graph(paths.values, dump.stream, dump.buffers)
    values = {"file": "values.graph", "digest": digest}
    write_manifest(paths, {"run": RUN, "state": "succeeded", "outcome": {"values": values}}, durable=False)
    return paths, Graph(file="values.graph", digest=digest)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that a group shares."""
    for folder in (tmp_path / "store", tmp_path / "store" / "runs"):
        folder.mkdir()
        folder.chmod(SHARED_FOLDER)
    return tmp_path / "store"


@pytest.fixture(params=["rank", "no gateway"])
def around(request: pytest.FixtureRequest, store: Path, monkeypatch: pytest.MonkeyPatch) -> ExecutionContext:
    """Where no gateway can be asked: in a cell, or since there is none."""

    def find() -> Target:
        raise GatewayUnavailableError("nobody there")

    in_run = request.param == "rank"
    found = ExecutionContext(
        realm=lambda: NamespaceInfo({}, at_home=True),
        find_target=None if in_run else find,
        store=lambda: str(store),
        in_run=in_run,
    )
    monkeypatch.setattr(client_load, "execution_context", lambda: found)
    monkeypatch.setattr(ownership, "_told", {})
    return found


def test_a_cell_is_told_of_the_newest_results_and_of_their_very_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_told", {})
    monkeypatch.setattr(ownership, "_NEWEST", 2)
    monkeypatch.setattr(ownership, "_trusted", {1})
    for run in ("first", "second", "third", "first"):
        ownership.note_results(run, Graph(stream=b"s", buffers=[b"a", b"bc"]))
    assert list(ownership.results_for_cell()) == ["first", "third"]
    assert ownership.is_what_was_told("first", b"s", [b"a", b"bc"])
    assert not ownership.is_what_was_told("first", b"s", [b"ab", b"c"])


pytestmark = pytest.mark.filterwarnings("ignore:.*by the manifest in the store")


def test_what_no_gateway_has_told_of_is_not_loaded(around: ExecutionContext, store: Path, tmp_path: Path) -> None:
    _write(store, Trap(tmp_path / "trap"))
    with pytest.raises(ForbiddenError, match="is a group's") as refused:
        client_load.load_results(RUN)
    assert ("in the notebook" in refused.value.hint) == around.in_run
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("inline", [False, True])
def test_ones_own_runs_are_loaded_and_what_is_put_in_their_place_is_not(
    inline: bool, around: ExecutionContext, store: Path, tmp_path: Path
) -> None:
    _paths, graph = _write(store, [1, 2])
    dump = _dumped([1, 2])
    told = Graph(dump.stream, [bytes(each) for each in dump.buffers]) if inline else graph
    client_results.open_values(RUN, told, lambda: store, "the store")  # the run's end, as the gateway told of it
    assert client_load.load_results(RUN)["x"] == [1, 2]
    _write(store, Trap(tmp_path / "trap"))
    with pytest.raises(StoreError, match=r"damaged|altered"):
        client_load.load_results(RUN)
    assert not (tmp_path / "trap").exists()


def test_a_cell_knows_what_its_notebook_knows(
    around: ExecutionContext, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _paths, graph = _write(store, [1, 2])
    client_results.open_values(RUN, graph, lambda: store, "the store")
    monkeypatch.setattr(ownership, "_trusted", set())
    assert ownership.results_for_cell() == {}, "a store of one user says enough"
    monkeypatch.setattr(ownership, "_trusted", {1})
    sent = ownership.results_for_cell()
    monkeypatch.setattr(ownership, "_told", {})
    ownership.learn_results(sent)
    assert client_load.load_results(RUN)["x"] == [1, 2]


def test_files_of_the_clusters_own_user_are_loaded_too(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = SimpleNamespace(health=lambda: SimpleNamespace(service_uid=4242, store=str(store)))
    monkeypatch.setattr(client_load.GatewayClient, "for_target", lambda _: contextlib.nullcontext(gateway))
    monkeypatch.setattr(ownership, "_trusted", set())
    assert client_load.store_of(Target("http://a", "t", True, str(store))) == store
    assert ownership.is_trusted(4242)


def test_the_newest_results_are_told() -> None:
    runs = [f"20260101-000000-{number:08}" for number in range(150)]
    for run in runs:
        ownership.note_results(run, Graph(file="values.graph", digest=run))
    ownership.note_results(runs[0], Graph(file="values.graph", digest="again"))
    newest = list(ownership._told)[-2:]
    assert newest == [runs[-1], runs[0]]
