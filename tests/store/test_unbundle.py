"""What no export writes is refused when it is imported, and leaves nothing."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3
from bundle_bed import MIB, RUN, SECRET, make_run, read
from forked import killed_before_change

from jupyter_gpu_release.errors import GpuReleaseError, RequestError, StoreError
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.bundle import (
    BundledFile,
    BundleHead,
    BundleReader,
    is_kept_path,
    proof_of,
    unpack_bundle,
)


def refused(path: Path, store: Path, message: str) -> None:
    with pytest.raises(GpuReleaseError, match=message):
        unpack_bundle(store, read(path))
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
    [
        "../evil",
        "/etc/evil",
        "files/../../evil",
        "files//x",
        "files/./x",
        "files/a\nb",
        "",
        "files/",
        "blob",
        ".ssh/x",
        "files/" + "x" * 300,
        "runs/x",
        "a\0b",
        "VALUES.graph",
    ],
)
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


def test_a_bundle_whose_graph_refers_to_more_than_it_brings(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "less.tar"
    with tarfile.open(bundle) as whole, tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as less:
        head = read(bundle).head
        (*kept, left_out) = head.blobs
        raw = msgspec.json.encode(msgspec.structs.replace(head, blobs=kept))
        changed = {"bundle.json": raw, "bundle.proof": proof_of(raw, SECRET).encode()}
        for member in whole:
            if member.name != f"blobs/{left_out.digest}":
                source = whole.extractfile(member)
                assert source is not None
                content = changed.get(member.name) or source.read()
                member.size = len(content)
                less.addfile(member, io.BytesIO(content))
    with pytest.raises(GpuReleaseError, match=r"content of (values|inputs)\.graph is not"):
        unpack_bundle(tmp_path / "other", read(path))
    assert not (tmp_path / "other" / "runs").exists()


def test_values_that_are_not_the_manifests(store: Path, tmp_path: Path) -> None:
    make_run(store)
    body = msgspec.json.encode(
        {"schema_version": 1, "run": RUN, "outcome": {"values": {"file": "../../x", "digest": "0"}}}
    )
    bundle = forged(tmp_path / "b.tar", lambda head: None, body=body)
    with pytest.raises(StoreError, match="as the file of the values"):
        unpack_bundle(tmp_path / "other", read(bundle))


def test_what_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(os.urandom(5000))
    with pytest.raises(RequestError, match="x is not imported: it is no tar of a run"):
        read(tmp_path / "x")


def test_killed_at_every_step_nothing_is_visible(bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for step in range(200):
        with bundle.open("rb") as file:
            reader = BundleReader(file, "b")
            status = killed_before_change(
                step,
                lambda reader=reader: unpack_bundle(other, reader),
                ("os.rename", "os.remove", "os.mkdir", "os.link"),
            )
        assert not (other / "runs").exists()
        for blob in BlobStore(other / "blobs").list_blobs():
            BlobStore(other / "blobs").verify_blob(blob.digest)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert step > 20
