"""Stores of each version of the formats are read: ``harness/golden_store.py`` makes them, and says when."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream_names import paths_of_ours

from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.bundle import BundleReader, incoming_folder, unpack_bundle
from jupyter_gpu_release.store.event_log import read_events
from jupyter_gpu_release.store.graph_file import blobs_of, digest_in, open_graph
from jupyter_gpu_release.store.identity import read_identity
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import read_manifest
from jupyter_gpu_release.unpickling import Trust

_VERSIONS = sorted((Path(__file__).parent / "data").glob("v*.tar.xz"))


@pytest.fixture(params=_VERSIONS, ids=lambda path: path.name.partition(".")[0])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def only_run(store: Path) -> RunPaths:
    (folder,) = (store / "runs").iterdir()
    return RunPaths(folder)


def test_the_archives_are_small() -> None:
    assert _VERSIONS
    assert all(path.stat().st_size < 200_000 for path in _VERSIONS)


def test_a_run_of_each_version_is_read(golden: Path) -> None:
    store = golden / "store"
    paths = only_run(store)
    assert len(read_identity(store)) == 16
    manifest = read_manifest(paths)
    assert manifest["state"] == "succeeded"
    printed = [event.data["text"] for event in read_events(paths.events) if event.kind == "stream"]
    assert "".join(printed) == "training\n"
    assert (paths.files / "model.bin").read_bytes() == b"m" * 100
    check_graphs(paths, manifest)


def check_graphs(paths: RunPaths, manifest: dict[str, Any]) -> None:
    graph = manifest["outcome"]["values"]
    stream, buffers = open_graph(paths.folder / graph["file"], graph["digest"], verify=True)
    assert paths_of_ours(stream) == set()
    loaded = codec.load(stream, buffers, NamespaceInfo({}, at_home=True), trust=Trust.OWN)
    assert loaded.missing == {}
    check_values(loaded.values)
    sent = open_graph(paths.inputs, digest_in(paths.inputs), verify=True)
    assert codec.load(*sent, NamespaceInfo({}, at_home=True), trust=Trust.OWN).values["table"].shape == (400, 400)
    store = BlobStore(paths.folder.parents[1] / "blobs")
    for digest, length in [*blobs_of(paths.values), *blobs_of(paths.inputs)]:
        assert len(store.map_blob(digest, length)) == length


def check_values(values: dict[str, Any]) -> None:
    assert values["history"] == [1, 2, 4]
    assert values["step"]() == 5
    assert values["large"].sum() == sum(range(200)) * 1000
    assert np.shares_memory(values["view"], values["large"])
    assert values["corner"].shape == (2, 400)
    assert values["dates"].tolist() == np.array(["2026-01-01"], "M8[D]").tolist()
    assert values["masked"].mask.tolist() == [False, True, False]
    assert values["frame"]["b"].tolist() == list("vwxyz")
    assert values["weights"].requires_grad
    assert values["rows"].data_ptr() == values["weights"].data_ptr() + 12
    assert values["optimiser"].param_groups[0]["params"][0] is values["weights"]
    assert values["reference"]() is values["held"]
    assert values["words"] == {"one", "two", "three"}
    assert (type(values["error"]), values["error"].errno) == (FileNotFoundError, 2)
    assert [type(box).__name__ for box in values["boxes"]] == ["Box", "Box"]
    assert values["boxes"][0] is values["box"]
    assert values["boxes"][1].value.name == "RED"
    assert values["cached"](3).value == 3


def test_an_export_of_each_version_is_read(golden: Path) -> None:
    fresh = golden / "fresh"
    (fresh / "runs").mkdir(parents=True)
    with open(golden / "run.tar", "rb") as file:
        folder = incoming_folder(fresh, unpack_bundle(fresh, BundleReader(file, "run.tar")))
    unpacked, original = read_manifest(RunPaths(folder)), read_manifest(only_run(golden / "store"))
    assert unpacked["run"] == original["run"]
    assert unpacked["outcome"]["values"] == original["outcome"]["values"]
