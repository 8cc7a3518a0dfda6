"""Exported and imported runs are the same to the last byte; what no export writes is refused and leaves nothing."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from jupyter_gpu_release.errors import GpuReleaseError, RequestError, StoreError
from jupyter_gpu_release.storage.blobs import BlobStore
from jupyter_gpu_release.storage.bundle import (
    BundledFile,
    BundleHead,
    BundleReader,
    is_kept_path,
    proof_of,
    write_bundle,
)
from jupyter_gpu_release.storage.graph_file import open_graph, write_graph
from jupyter_gpu_release.storage.layout import RunPaths
from jupyter_gpu_release.storage.runs import create_run_folder, write_manifest
from jupyter_gpu_release.storage.unbundle import incoming_folder, unpack

RUN = "20260101-000000-00000001"
SECRET = "the token"
MIB = 1 << 20


def make_run(store: Path, **facts: object) -> tuple[RunPaths, str]:
    paths = create_run_folder(store, RUN)
    digest = write_graph(paths.values, b"stream", [b"a" * MIB, b"b" * (3 * MIB), b"small"], durable=False)
    write_graph(paths.inputs, b"in", [b"a" * MIB], durable=False)
    paths.events.write_bytes(b"events")
    (paths.files / "deep").mkdir()
    (paths.files / "deep" / "model é.bin").write_bytes(b"m" * 70_000)
    (paths.files / "empty").touch()
    manifest = {"run": RUN, "state": "succeeded", "outcome": {"values": {"file": "values.graph", "digest": digest}}}
    write_manifest(paths, manifest | facts, durable=False)
    return paths, digest


def export(store: Path, target: Path) -> BundleHead:
    return write_bundle(store, RUN, target, exported_by="ann@here", secret=SECRET)


def read(path: Path) -> BundleReader:
    return BundleReader(path.open("rb"), path.name)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def bundle(store: Path, tmp_path: Path) -> Path:
    make_run(store)
    export(store, tmp_path / "run.tar")
    return tmp_path / "run.tar"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_round_trip_to_another_store(store: Path, tmp_path: Path, bundle: Path) -> None:
    other = tmp_path / "other"
    reader = read(bundle)
    folder = incoming_folder(other, unpack(other, reader))
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


def test_memory_is_bounded(store: Path, tmp_path: Path) -> None:
    paths, _ = make_run(store)
    with (paths.files / "large").open("wb") as file:
        file.truncate(400 * MIB)
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from jupyter_gpu_release.storage.bundle import BundleReader, write_bundle\n"
        "from jupyter_gpu_release.storage.unbundle import unpack\n"
        "a, b = map(Path, sys.argv[1:]); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"write_bundle(a, {RUN!r}, b, exported_by='x', secret='y')\n"
        "unpack(a, BundleReader(b.open('rb'), 'b'))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(store), str(tmp_path / "b")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 100


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
    blob = next(BlobStore(store / "blobs").scan())
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


# ------------------------------------------------------------------------------------- what is not imported
def refused(path: Path, store: Path, message: str) -> None:
    with pytest.raises(GpuReleaseError, match=message):
        unpack(store, read(path))
    assert list(store.glob("incoming/*")) == []
    assert not (store / "runs").exists()


def test_cut_short_anywhere(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    cut = tmp_path / "cut.tar"
    for size in [0, 100, 511, 512, 700, 1500, 4000, len(whole) // 2, len(whole) - MIB, len(whole) - 1100]:
        cut.write_bytes(whole[:size])
        refused(cut, tmp_path / "other", r"cut\.tar is not imported: it is cut short")


def test_a_bit_flipped_anywhere(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    flipped = tmp_path / "flipped.tar"
    with tarfile.open(bundle) as tar:
        members = [member for member in tar if member.size and member.name != "bundle.proof"]
    for member in members:
        content = bytearray(whole)
        content[member.offset_data + member.size // 2] ^= 1
        flipped.write_bytes(content)
        refused(flipped, tmp_path / "other", "is not imported|is no path|damaged")


def forged(path: Path, change: Callable[[dict[str, object]], None], **members: bytes) -> Path:
    """A bundle with one file, changed, with a good proof."""
    body = members.pop("body", b"{}")
    described = BundledFile("manifest.json", len(body), blake3(body).hexdigest())
    head = msgspec.to_builtins(BundleHead(1, RUN, "eve", [described], []))
    change(head)
    raw = msgspec.json.encode(head)
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in (("bundle.json", raw), ("bundle.proof", proof_of(raw, SECRET).encode())):
            facts = tarfile.TarInfo(name)
            facts.size = len(content)
            tar.addfile(facts, io.BytesIO(content))
        facts = tarfile.TarInfo("run/000000")
        facts.size = len(body)
        tar.addfile(facts, io.BytesIO(body))
    return path


@pytest.mark.parametrize(
    "path",
    ["../evil", "/etc/evil", "files/../../evil", "files//x", "files/./x", "files/a\nb", "", "files/", "blob", ".ssh/x",
     "files/" + "x" * 300, "runs/x", "a\0b", "VALUES.graph"],
)  # fmt: skip
def test_paths_that_lead_elsewhere(tmp_path: Path, path: str) -> None:
    assert not is_kept_path(path)
    bundle = forged(tmp_path / "b.tar", lambda head: head["files"][0].update(path=path))
    refused(bundle, tmp_path / "other", "is no path of a run folder")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda head: head.update(schema_version=2), "schema_version 2, this package reads up to 1"),
        (lambda head: head.update(run="../x"), "is not the id of a run"),
        (lambda head: head.update(files=head["files"] * 2), "names a path twice"),
        (lambda head: head["files"][0].update(bytes=-1), "sizes or digests that are none"),
        (lambda head: head.update(blobs=[{"digest": "../x", "bytes": 1}]), "sizes or digests that are none"),
        (lambda head: head["files"][0].update(bytes=99), "has 2 bytes"),
        (lambda head: head["files"][0].update(bytes=1 << 62), "are free"),
        (lambda head: head["files"][0].update(digest="0" * 64), "content of manifest.json is not"),
        (lambda head: head.pop("run"), "bundle.json is damaged"),
        (lambda head: None, "schema_version None"),
    ],
)
def test_forged_heads(tmp_path: Path, change: Callable[[dict[str, object]], None], message: str) -> None:
    refused(forged(tmp_path / "b.tar", change), tmp_path / "other", message)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, b"L", b"x"])
def test_members_that_are_no_plain_files(tmp_path: Path, bundle: Path, kind: bytes) -> None:
    content = bytearray(bundle.read_bytes())
    with tarfile.open(bundle) as tar:
        member = tar.getmember("run/000000")
    member.type, member.linkname = kind, "/etc/passwd"
    at = member.offset_data - tarfile.BLOCKSIZE
    content[at : at + tarfile.BLOCKSIZE] = member.tobuf(tarfile.GNU_FORMAT)[:512]
    (tmp_path / "linked.tar").write_bytes(content)
    refused(tmp_path / "linked.tar", tmp_path / "other", "is no plain file")


def test_more_than_it_says(bundle: Path, tmp_path: Path) -> None:
    with tarfile.open(bundle, "a") as tar:
        facts = tarfile.TarInfo("run/more")
        facts.size = 3
        tar.addfile(facts, io.BytesIO(b"abc"))
    refused(bundle, tmp_path / "other", "more in it than bundle.json says")


def test_values_that_are_not_the_manifests(store: Path, tmp_path: Path) -> None:
    make_run(store)
    body = msgspec.json.encode(
        {"schema_version": 1, "run": RUN, "outcome": {"values": {"file": "../../x", "digest": "0"}}}
    )
    bundle = forged(tmp_path / "b.tar", lambda head: None, body=body)
    with pytest.raises(StoreError, match="as the file of the values"):
        unpack(tmp_path / "other", read(bundle))


def test_what_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(os.urandom(5000))
    with pytest.raises(RequestError, match="x is not imported: it is no tar of a run"):
        read(tmp_path / "x")


#: kills itself before the n-th change of the filesystem
_KILLED = """
import os, signal, sys
from pathlib import Path
from jupyter_gpu_release.storage.bundle import BundleReader
from jupyter_gpu_release.storage.unbundle import unpack
left = int(sys.argv[3])
def watch(event, arguments):
    global left
    if event in ("os.rename", "os.remove", "os.mkdir", "os.link") or (event == "open" and arguments[2] & os.O_CREAT):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
reader = BundleReader(open(sys.argv[2], "rb"), "b")
sys.addaudithook(watch)
unpack(Path(sys.argv[1]), reader)
"""


def test_killed_at_every_step_nothing_is_visible(bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for step in range(200):
        done = subprocess.run([sys.executable, "-c", _KILLED, str(other), str(bundle), str(step)], check=False)
        assert not (other / "runs").exists()
        for blob in BlobStore(other / "blobs").scan():
            BlobStore(other / "blobs").verify(blob.digest)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
    assert step > 20
