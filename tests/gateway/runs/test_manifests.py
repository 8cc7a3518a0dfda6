"""Manifests on a store that refuses for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from store_bed import run_id

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.gateway.runs import manifests as module
from jupyter_gpu_release.gateway.runs.manifests import Manifests
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.lineage import Environment
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store, read_manifest, write_manifest
from jupyter_gpu_release.store.stored_run import StoredRun
from jupyter_gpu_release.store.threads import StoreThreads


def test_the_newest_is_written_when_the_store_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)
    store, away, run = tmp_path / "store", tmp_path / "away", run_id(1)
    make_store(store)
    store.rename(away)

    async def write() -> None:
        manifests = Manifests(store, StoreThreads())
        request = RunRequest(run, "session", ResourceAsk(), b"")
        manifests.write_manifest(RunView(run, "ann", "running"), None, request)
        await _until_tried(manifests, run)
        manifests.write_manifest(RunView(run, "ann", "failed"), None, request)
        assert not store.exists()
        away.rename(store)
        await manifests.flush()

    asyncio.run(write())
    assert read_manifest(RunPaths.of(store, run))["state"] == "failed"


def test_a_manifest_is_read_back_whole(tmp_path: Path) -> None:
    """No field of a view is another thing in the manifest."""
    view = RunView(run_id(1), "ann", "succeeded", built="packages that the cluster lacks: einops 0.8.1")
    request = RunRequest(run_id(1), "session", ResourceAsk(), b"", code="x = 1")
    make_store(tmp_path)
    paths = create_run_folder(tmp_path, run_id(1))
    manifest = module.manifest_of(view, Outcome("ok"), request, Environment("3.11", packages={"numpy": "2"}))
    write_manifest(paths, manifest, durable=False)
    stored = StoredRun.read(paths)
    assert (stored.view.built, stored.facts.code) == (view.built, "x = 1")
    assert stored.facts.environment.packages == {"numpy": "2"}


def test_of_a_short_run_only_the_end_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DEBOUNCE_S", 3600.0)
    run, written = run_id(1), []
    make_store(tmp_path)

    async def live() -> None:
        manifests = Manifests(tmp_path, StoreThreads())
        monkeypatch.setattr(module, "write_manifest", lambda *facts, durable: written.append((facts[1], durable)))
        request = RunRequest(run, "session", ResourceAsk(), b"")
        for state in ("starting", "running", "succeeded"):
            manifests.write_manifest(RunView(run, "ann", state), None, request)
        manifests.write_manifest(RunView(run, "ann", "succeeded"), None, request, Environment(python="3.11"))
        manifests.amend("ann", run, note="first")
        manifests.amend("ann", run, pinned=True)
        await manifests.flush()

    asyncio.run(live())
    [(manifest, durable)] = written
    assert (manifest["state"], manifest["environment"]["python"], durable) == ("succeeded", "3.11", True)
    assert (manifest["note"], manifest["pinned"]) == ("first", True)


@pytest.mark.parametrize(
    ("state", "values", "stay"),
    [
        ("running", None, {"save-3.graph", "save-4-1.graph", "save-2.1.graph", "values.graph", "values.2.graph"}),
        ("succeeded", Graph(file="values.2.graph", digest="d"), {"values.2.graph"}),
        ("succeeded", Graph(stream=b"small"), {"values.graph"}),
        ("lost", Graph(file="save-3.graph", digest="d"), {"save-3.graph"}),
    ],
)
def test_what_a_run_could_go_on_from_goes_with_its_end(
    tmp_path: Path, state: str, values: Graph | None, stay: set[str]
) -> None:
    make_store(tmp_path)
    paths = create_run_folder(tmp_path, run_id(1))
    others = {"manifest.json", "files", "inputs.graph", "item-1.graph"}
    for name in ("save-3.graph", "save-4-1.graph", "save-2.1.graph", "values.graph", "values.2.graph"):
        (paths.folder / name).touch()
    for name in ("inputs.graph", "item-1.graph", "files/save-1.graph"):
        (paths.folder / name).touch()

    async def write() -> None:
        manifests = Manifests(tmp_path, StoreThreads())
        outcome = None if values is None else Outcome("ok", values=values)
        view = RunView(run_id(1), "ann", state, restartable=True)
        manifests.write_manifest(view, outcome, RunRequest(run_id(1), "s", ResourceAsk(), b""))
        await manifests.flush()

    asyncio.run(write())
    assert {path.name for path in paths.folder.iterdir()} == others | stay
    assert (paths.files / "save-1.graph").exists()


async def _until_tried(manifests: Manifests, run: str) -> None:
    """It is tried in a thread; what was refused is there again."""
    refused = asyncio.Event()
    original = manifests._write_now

    def write(*arguments: object) -> None:
        try:
            original(*arguments)  # type: ignore[arg-type]
        except StoreError:
            loop.call_soon_threadsafe(refused.set)
            raise

    loop = asyncio.get_running_loop()
    manifests._write_now = write  # type: ignore[method-assign]
    await asyncio.wait_for(refused.wait(), 60)
