"""``load`` of a run that has not left its results yet says what it is at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_gpu_release.cell_api.context import ExecutionContext
from jupyter_gpu_release.client import loading as client_load
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.results import Results, open_stored
from jupyter_gpu_release.errors import ForbiddenError, NoSuchRunError, RunFailedError, StillTrainingError, StoreError
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import Outcome, PersistWait, RunView, ValueInfo
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.graph_file import write_graph
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store, write_manifest

RUN = "20260101-000000-00000001"


@pytest.mark.parametrize(("state", "says"), [("running", "is not over"), ("persisting", "are still being written")])
def test_by_the_store_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, says: str) -> None:
    write_manifest(create_run_folder(tmp_path, RUN), {"run": RUN, "state": state}, durable=False)
    around = ExecutionContext(
        realm=lambda: NamespaceInfo({}, at_home=True), find_target=None, store=lambda: str(tmp_path)
    )
    monkeypatch.setattr(client_load, "execution_context", lambda: around)
    monkeypatch.setattr(client_load, "_END_TOLD_S", 0.01)
    with pytest.raises(StillTrainingError, match=says):
        client_load.load_results(RUN)


@pytest.mark.parametrize("before", [None, {"run": RUN, "state": "persisting"}])
def test_the_end_of_a_run_may_be_in_its_manifest_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, str] | None
) -> None:
    paths = create_run_folder(tmp_path, RUN)
    if before is not None:
        write_manifest(paths, before, durable=False)
    around = ExecutionContext(
        realm=lambda: NamespaceInfo({}, at_home=True), find_target=None, store=lambda: str(tmp_path)
    )
    monkeypatch.setattr(client_load, "execution_context", lambda: around)

    def end(_: float) -> None:
        write_manifest(paths, {"run": RUN, "state": "succeeded"}, durable=False)

    monkeypatch.setattr(client_load, "sleep", end)
    assert client_load.load_results(RUN).state == "succeeded"


def test_by_the_gateway_with_what_it_waits_for() -> None:
    wait = PersistWait("/store/runs/x/values.graph", 1 << 30, "No space left on device")
    view = RunView(RUN, "u", "persisting", outcome=Outcome("ok"), waits_for=wait)
    around = ExecutionContext(realm=lambda: NamespaceInfo({}, at_home=True), find_target=None)
    with pytest.raises(StillTrainingError, match=r"being written: 1 GiB .*No space left on device"):
        client_load._from_view(view, None, around)  # type: ignore[arg-type]
    assert not client_load._is_ending(view), "nobody waits here for room on the store"


def test_the_gateway_is_told_which_notebook_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a collection takes the files that its arrays are mapped from."""
    asked: list[tuple[str, str]] = []

    def view(run: str, session: str = "") -> RunView:
        asked.append((run, session))
        return RunView(run, "u", "succeeded", outcome=Outcome("ok"))

    gateway = nullcontext(SimpleNamespace(view=view))
    monkeypatch.setattr(client_load, "GatewayClient", SimpleNamespace(for_target=lambda _: gateway))
    around = ExecutionContext(
        realm=lambda: NamespaceInfo({}, at_home=True),
        find_target=lambda: Target("http://127.0.0.1:9", ""),
        session=lambda: "mine",
    )
    monkeypatch.setattr(client_load, "execution_context", lambda: around)
    assert dict(client_load.load_results(RUN)) == {}
    assert asked == [(RUN, "mine")]


def test_results_that_were_collected_are_not_taken_for_none() -> None:
    around = ExecutionContext(realm=lambda: NamespaceInfo({}, at_home=True), find_target=None)
    view = RunView(RUN, "u", "succeeded", outcome=Outcome("ok", results=[ValueInfo("x", "int", 1)]))
    with pytest.raises(StoreError, match="not kept any more"):
        client_load._from_view(view, None, around)  # type: ignore[arg-type]


def test_results_of_others_are_theirs() -> None:
    around = ExecutionContext(realm=lambda: NamespaceInfo({}, at_home=True), find_target=None)
    with pytest.raises(NoSuchRunError, match=f"run {RUN} belongs to bob, and so do its results"):
        client_load._from_view(RunView(RUN, "bob", "succeeded"), None, around)  # type: ignore[arg-type]


@pytest.mark.parametrize(("reason", "said"), [("", "results"), ("a node was lost", "results: a node was lost")])
def test_a_run_that_failed_and_left_nothing_says_so(reason: str, said: str) -> None:
    around = ExecutionContext(realm=lambda: NamespaceInfo({}, at_home=True), find_target=None)
    view = RunView(RUN, "u", "lost", reason=reason, outcome=Outcome("lost"))
    with pytest.raises(RunFailedError) as failed:
        client_load._from_view(view, None, around)  # type: ignore[arg-type]
    assert failed.value.message == f"run {RUN} lost and left no {said}"


@pytest.mark.parametrize("spoil", ["damaged", "of another run", "linked"])
def test_a_run_folder_that_is_not_what_it_says_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    paths = create_run_folder(tmp_path, RUN)
    digest = write_graph(paths.values, codec.dump({"x": 1}, NamespaceInfo({}, at_home=True)).stream, [])
    values = Graph(file="values.graph", digest=digest)
    manifest = {"run": RUN, "state": "succeeded", "outcome": {"values": {"file": values.file, "digest": digest}}}
    write_manifest(paths, manifest, durable=False)
    view = RunView(RUN, "u", "succeeded", outcome=Outcome("ok", values=values))
    around = ExecutionContext(
        realm=lambda: NamespaceInfo({}, at_home=True),
        find_target=None,
        store=lambda: str(tmp_path),
        loaded=lambda run, values: noted.append((run, dict(values))),
    )
    noted: list[tuple[str, dict[str, int]]] = []
    monkeypatch.setattr(client_load, "execution_context", lambda: around)
    target = Target("http://127.0.0.1:9", "", False, str(tmp_path))

    def load_both() -> Iterator[Callable[[], Results]]:
        yield lambda: client_load.load_results(RUN)
        yield lambda: client_load._from_view(view, target, around)

    assert [dict(load()) for load in load_both()] == [{"x": 1}, {"x": 1}]
    assert noted == [(RUN, {"x": 1})] * 2
    paths.values.chmod(0o640)
    with pytest.raises(ForbiddenError, match="does not belong to you alone"):
        client_load.load_results(RUN)
    paths.values.chmod(0o600)
    if spoil == "damaged":
        paths.manifest.write_text("{")
    elif spoil == "of another run":
        write_manifest(paths, manifest | {"run": RUN.replace("1", "2")}, durable=False)
    else:
        paths.folder.rename(tmp_path / "elsewhere")
        paths.folder.symlink_to(tmp_path / "elsewhere")
    for load in load_both():
        with pytest.raises((StoreError, ForbiddenError), match=r"damaged|not that of run|symbolic link|alone"):
            load()


@pytest.mark.parametrize(
    ("named", "hint"), [(None, "was it removed there?"), ("/there", "where this kernel sees /there, the store of")]
)
def test_a_run_whose_folder_is_not_there_is_named(tmp_path: Path, named: str | None, hint: str) -> None:
    make_store(tmp_path)
    with pytest.raises(StoreError, match=f"no folder of run {RUN}") as refused:
        open_stored(RUN, Graph(file="values.graph", digest="0"), tmp_path, named or str(tmp_path))
    assert hint in refused.value.hint
