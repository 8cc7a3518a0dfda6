"""Manifests on a store that refuses for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from store_bed import run_id

from jupyter_gpu_release.errors import StoreError, StoreSilentError
from jupyter_gpu_release.gateway.runs import manifests as module
from jupyter_gpu_release.gateway.runs.manifests import Manifests
from jupyter_gpu_release.host.threads import StoreThreads
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.lineage import Environment, UsedInput
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store, read_manifest, write_manifest
from jupyter_gpu_release.store.stored_run import StoredRun


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
    view = RunView(
        run_id(1), "ann", "succeeded", built="packages that the cluster lacks: einops", environment_digest="e1"
    )
    request = RunRequest(run_id(1), "session", ResourceAsk(), b"", code="x = 1")
    make_store(tmp_path)
    paths = create_run_folder(tmp_path, run_id(1))
    manifest = module.manifest_of(view, Outcome("ok"), request, Environment("3.11", packages={"numpy": "2"}))
    write_manifest(paths, manifest, durable=False)
    stored = StoredRun.read(paths)
    assert (stored.view.built, stored.view.environment_digest, stored.facts.code) == (view.built, "e1", "x = 1")
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


def test_a_manifest_tells_how_the_run_ended_and_nothing_that_only_the_gateway_needs() -> None:
    error = ErrorInfo("ValueError", "no", ["in the cell"], code="failed", hint="mend it", pickled=b"p")
    outcome = Outcome("error", error, Graph(stream=b"s", file="values.graph", digest="d"), frames={0: Graph(b"f")})
    view = RunView(run_id(1), "ann", "failed", seq=7, position=3, outcome=outcome)
    used = [UsedInput("x", "int", run=run_id(2))]
    request = RunRequest(run_id(1), "s", ResourceAsk(2), b"payload", timeout_s=9.0, wait_s=8.0, fresh=True, used=used)
    manifest = module.manifest_of(view, outcome, request)
    assert manifest["outcome"]["error"] == {
        "ename": "ValueError",
        "evalue": "no",
        "code": "failed",
        "mend": "mend it",
        "traceback": ["in the cell"],
    }
    assert manifest["outcome"]["values"] == {"file": "values.graph", "digest": "d"}
    assert [manifest[name] for name in ("timeout_s", "wait_s", "fresh")] == [9.0, 8.0, True]
    assert manifest["ask"]["gpus"] == 2
    assert manifest["inputs"][0]["run"] == run_id(2)
    assert manifest.keys().isdisjoint({"seq", "position", "payload", "environment"})
    assert "frames" not in manifest["outcome"]
    inline = module.manifest_of(view, Outcome("ok", values=Graph(stream=b"small")), request)
    assert "values" not in inline["outcome"], "they are not durable"


def test_results_that_are_on_the_store_are_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(tmp_path)
    folder = create_run_folder(tmp_path, run_id(1)).folder
    (folder / "values.graph").write_bytes(b"x")

    def outcome(file: str, digest: str) -> Outcome:
        return Outcome("ok", values=Graph(file=file, digest=digest))

    def silent(*_: object) -> bool:
        raise StoreSilentError("the store does not answer")

    async def may_have(found: Outcome | None) -> bool:
        return await Manifests(tmp_path, StoreThreads()).may_have_values("ann", run_id(1), found)

    asked = [None, Outcome("ok"), outcome("values.graph", "d"), outcome("values.graph", ""), outcome("gone.graph", "d")]
    assert [asyncio.run(may_have(found)) for found in asked] == [True, True, True, False, False]
    monkeypatch.setattr(Manifests, "has_values", silent)
    assert [asyncio.run(may_have(found)) for found in asked] == [True, True, True, False, True]


def test_a_run_whose_folder_is_gone_gets_one_and_what_was_never_there_is_not_amended(tmp_path: Path) -> None:
    make_store(tmp_path)

    async def write() -> None:
        manifests = Manifests(tmp_path, StoreThreads())
        manifests.write_manifest(
            RunView(run_id(1), "ann", "failed"), None, RunRequest(run_id(1), "s", ResourceAsk(), b"")
        )
        manifests.amend("ann", run_id(2), pinned=True)
        await manifests.flush()

    asyncio.run(write())
    assert read_manifest(RunPaths.of(tmp_path, run_id(1)))["state"] == "failed"
    assert not RunPaths.of(tmp_path, run_id(2)).folder.exists()


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
