"""Exported and imported runs are the same to the last byte; what cannot be exported is named."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from bundle_bed import MIB, RUN, SECRET, contents, export, make_run, read

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.bundle import incoming_folder, unpack_bundle, write_bundle
from jupyter_gpu_release.store.graph_file import open_graph, write_graph
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import write_manifest


def test_a_round_trip_to_another_store(store: Path, tmp_path: Path, bundle: Path) -> None:
    other = tmp_path / "other"
    reader = read(bundle)
    folder = incoming_folder(other, unpack_bundle(other, reader))
    assert (reader.head.run, reader.head.exported_by, len(reader.head.blobs)) == (RUN, "ann@here", 2)
    assert contents(folder) == contents(store / "runs" / RUN)
    (other / "runs").mkdir()
    os.rename(folder, other / "runs" / RUN)
    digest = msgspec.json.decode((other / "runs" / RUN / "manifest.json").read_bytes())["outcome"]["values"]["digest"]
    opened = open_graph(other / "runs" / RUN / "values.graph", digest, verify=True)
    assert [len(buffer) for buffer in opened.buffers] == [MIB, 3 * MIB, 5]


def test_any_tar_can_look_into_it(bundle: Path) -> None:
    with tarfile.open(bundle) as tar:
        names = tar.getnames()
    assert names[:2] == ["bundle.json", "bundle.proof"]
    assert len([name for name in names if name.startswith("blobs/")]) == 2


def test_the_proof_is_of_the_secret_and_the_content(bundle: Path) -> None:
    reader = read(bundle)
    assert reader.is_proved(SECRET)
    assert not reader.is_proved("another token")
    altered = bundle.with_name("altered.tar")
    altered.write_bytes(bundle.read_bytes().replace(b"ann@here", b"bob@here"))
    assert not read(altered).is_proved(SECRET)


@pytest.mark.parametrize("told", ["0" * 32, ""])
def test_values_of_which_the_gateway_tells_another_thing_are_not_exported(
    told: str, store: Path, tmp_path: Path
) -> None:
    """Whoever may write to a store may alter graph and manifest: a proof would say that its owner made them."""
    _paths, digest = make_run(store)
    target = tmp_path / "run.tar"
    with pytest.raises(StoreError, match="other values than the gateway"):
        write_bundle(store, RUN, target, exported_by="ann@here", secret=SECRET, told=told)
    assert not target.exists()
    write_bundle(store, RUN, target, exported_by="ann@here", secret=SECRET, told=digest)
    assert read(target).is_proved(SECRET)


def test_memory_is_bounded(store: Path, tmp_path: Path) -> None:
    paths, _ = make_run(store)
    with (paths.files / "large").open("wb") as file:
        file.truncate(160 * MIB)
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from jupyter_gpu_release.store.bundle import BundleReader, write_bundle\n"
        "from jupyter_gpu_release.store.bundle import unpack_bundle\n"
        "a, b = map(Path, sys.argv[1:]); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"write_bundle(a, {RUN!r}, b, exported_by='x', secret='y')\n"
        "unpack_bundle(a, BundleReader(b.open('rb'), 'b'))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store), str(tmp_path / "b")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 50


# ------------------------------------------------------------------------------------ what is not exported
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda p: p.values.write_bytes(p.values.read_bytes()[:-5]), r"values\.graph is damaged"),
        (lambda p: p.values.unlink(), r"cannot read .*values\.graph"),
        (lambda p: write_graph(p.values, b"other", [], durable=False), r"values\.graph is not what the run's manifest"),
        (lambda p: p.manifest.write_bytes(b"{half"), r"manifest\.json is damaged"),
        (lambda p: p.manifest.write_bytes(b'{"schema_version": 9}'), r"manifest\.json has schema_version 9"),
        (lambda p: write_manifest(p, {"run": RUN, "state": "running"}, durable=False), "the run is running"),
    ],
)
def test_a_damaged_run_is_named(store: Path, tmp_path: Path, harm: Callable[[RunPaths], object], message: str) -> None:
    paths, _ = make_run(store)
    harm(paths)
    with pytest.raises(StoreError, match=message):
        export(store, tmp_path / "out.tar")
    assert os.listdir(tmp_path) == ["store"]


def test_an_altered_or_missing_blob_is_named(store: Path, tmp_path: Path) -> None:
    make_run(store)
    blob = next(BlobStore(store / "blobs").list_blobs())
    path = BlobStore(store / "blobs").path_of(blob.digest)
    path.chmod(0o600)
    path.write_bytes(b"x" * blob.bytes)
    with pytest.raises(StoreError, match=f"{blob.digest} is damaged"):
        export(store, tmp_path / "out.tar")
    path.unlink()
    with pytest.raises(StoreError, match=f"cannot read .*{blob.digest}"):
        export(store, tmp_path / "out.tar")
    assert os.listdir(tmp_path) == ["store"]


def test_a_linked_run_is_refused_and_links_in_it_are_left_out(store: Path, tmp_path: Path) -> None:
    paths, _ = make_run(store)
    (paths.files / "secret").symlink_to("/etc/passwd")
    (paths.files / "folder").symlink_to("/etc")
    os.mkfifo(paths.files / "pipe")
    assert sorted(export(store, tmp_path / "a.tar").left_out) == ["files/folder", "files/pipe", "files/secret"]
    assert b"root:" not in (tmp_path / "a.tar").read_bytes()
    paths.folder.rename(tmp_path / "elsewhere")
    paths.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=f"{RUN} is a symbolic link"):
        export(store, tmp_path / "b.tar")
