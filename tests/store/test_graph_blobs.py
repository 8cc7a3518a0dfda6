"""Graphs whose large buffers are blobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.graph_file import BLOB_BYTES, blobs_of, digest_in, open_graph, write_graph
from jupyter_gpu_release.store.run_folders import create_run_folder

RUN, NEXT = "20261121-101500-0123abcd", "20261121-101501-0123abcd"
LARGE = os.urandom(BLOB_BYTES) + b"end"


def paths(store: Path, run: str = RUN) -> Path:
    return create_run_folder(store, run).values


def blob_files(store: Path) -> list[Path]:
    return sorted(path for path in (store / "blobs").rglob("*") if path.is_file())


def test_large_buffers_are_blobs_and_small_ones_lie_in_the_file(tmp_path: Path) -> None:
    path = paths(tmp_path)
    digest = write_graph(path, b"stream", [b"small", LARGE, b"", LARGE, bytes(BLOB_BYTES - 1)])
    assert len(blob_files(tmp_path)) == 1
    assert path.stat().st_size < BLOB_BYTES + 4096
    opened = open_graph(path, digest)
    assert [len(buffer) for buffer in opened.buffers] == [5, len(LARGE), 0, len(LARGE), BLOB_BYTES - 1]
    assert bytes(opened.buffers[0]) == b"small"
    assert bytes(opened.buffers[1]) == bytes(opened.buffers[3]) == LARGE
    assert blobs_of(path) == [(blob_files(tmp_path)[0].name, len(LARGE))] * 2
    assert digest_in(path) == digest


def test_a_second_run_with_the_same_content_writes_nothing(tmp_path: Path) -> None:
    digest = write_graph(paths(tmp_path), b"s", [LARGE])
    (blob,) = blob_files(tmp_path)
    os.utime(blob, (1, 1))
    inode = blob.stat().st_ino
    assert write_graph(paths(tmp_path, NEXT), b"s", [bytearray(LARGE)]) == digest
    assert blob_files(tmp_path) == [blob]
    assert blob.stat().st_ino == inode
    assert blob.stat().st_mtime > 1  # collection spares it for a while


def test_what_one_run_made_and_the_next_uses_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_graph(paths(tmp_path), write_graph(paths(tmp_path), b"s", [LARGE]))
    with monkeypatch.context() as patch:
        patch.setattr("jupyter_gpu_release.store.blobs.digest_of", None)
        digest = write_graph(paths(tmp_path, NEXT), b"t", [opened.buffers[0]])
        read_only = write_graph(paths(tmp_path, NEXT), b"t", [opened.buffers[0].toreadonly()])
    assert digest == read_only
    assert bytes(open_graph(paths(tmp_path, NEXT), digest).buffers[0]) == LARGE


@pytest.mark.parametrize("pagemap", [True, False])
def test_what_was_changed_in_place_is_another_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pagemap: bool
) -> None:
    if not pagemap:
        monkeypatch.setattr("jupyter_gpu_release.store.mapped.mapping.page_flags", lambda *_: None)
    opened = open_graph(paths(tmp_path), write_graph(paths(tmp_path), b"s", [LARGE]))
    opened.buffers[0][77] ^= 1
    digest = write_graph(paths(tmp_path, NEXT), b"s", [opened.buffers[0]])
    assert len(blob_files(tmp_path)) == 2
    again = open_graph(paths(tmp_path, NEXT), digest).buffers[0]
    assert again[77] == LARGE[77] ^ 1
    assert bytes(again[78:]) == LARGE[78:]


def test_a_part_of_mapped_memory_is_a_content_of_its_own(tmp_path: Path) -> None:
    opened = open_graph(paths(tmp_path), write_graph(paths(tmp_path), b"s", [LARGE + LARGE]))
    digest = write_graph(paths(tmp_path, NEXT), b"s", [opened.buffers[0][: len(LARGE)]])
    assert bytes(open_graph(paths(tmp_path, NEXT), digest).buffers[0]) == LARGE


def test_a_blob_that_is_gone_is_written_from_memory_again(tmp_path: Path) -> None:
    opened = open_graph(paths(tmp_path), write_graph(paths(tmp_path), b"s", [LARGE]))
    (blob,) = blob_files(tmp_path)
    blob.unlink()
    write_graph(paths(tmp_path, NEXT), b"s", [opened.buffers[0]])
    assert blob.read_bytes() == LARGE


def test_another_store_gets_its_own_copy(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    opened = open_graph(paths(first), write_graph(paths(first), b"s", [LARGE]))
    write_graph(paths(second), b"s", [opened.buffers[0]])
    assert [path.read_bytes() for path in blob_files(second)] == [LARGE]


def test_a_named_store_serves_any_path(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "somewhere")
    digest = write_graph(tmp_path / "x.graph", b"s", [LARGE], blobs=store)
    assert bytes(open_graph(tmp_path / "x.graph", digest, blobs=store).buffers[0]) == LARGE
    with pytest.raises(StoreError, match="no store's"):
        open_graph(tmp_path / "x.graph", digest)


def test_damage_of_blobs_harms_only_their_runs(tmp_path: Path) -> None:
    other = bytes(BLOB_BYTES)
    digest = write_graph(paths(tmp_path), b"s", [other, LARGE])
    fine = write_graph(paths(tmp_path, NEXT), b"s", [other])
    (blob,) = [path for path in blob_files(tmp_path) if path.stat().st_size == len(LARGE)]
    blob.chmod(0o600)
    content = bytearray(LARGE)
    content[5] ^= 1
    blob.write_bytes(content)
    with pytest.raises(StoreError, match=f"{blob.name} is damaged: its content"):
        open_graph(paths(tmp_path), digest)
    blob.write_bytes(LARGE[:-1])
    with pytest.raises(StoreError, match="instead of"):
        open_graph(paths(tmp_path), digest)
    blob.unlink()
    with pytest.raises(StoreError, match=f"{blob.name}, which .*{RUN}/values.graph refers to"):
        open_graph(paths(tmp_path), digest)
    assert bytes(open_graph(paths(tmp_path, NEXT), fine).buffers[0]) == other


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_blob_is_neither_read_nor_referred_to(tmp_path: Path) -> None:
    digest = write_graph(paths(tmp_path), b"s", [LARGE])
    os.chown(blob_files(tmp_path)[0], 12345, -1)
    with pytest.raises(StoreError, match="belongs to user 12345"):
        open_graph(paths(tmp_path), digest)
    with pytest.raises(StoreError, match="belongs to user 12345"):
        write_graph(paths(tmp_path, NEXT), b"s", [LARGE])


def test_a_newer_format_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    digest = write_graph(path, b"s", [bytes(100)])
    path.write_bytes(path.read_bytes().replace(b"jgr-graph-1", b"jgr-graph-2"))
    with pytest.raises(StoreError, match="newer version"):
        open_graph(path, digest)


def test_a_large_stream_is_a_blob_too_and_always_checked(tmp_path: Path) -> None:
    digest = write_graph(paths(tmp_path), LARGE * 20, [])
    assert write_graph(paths(tmp_path, NEXT), LARGE * 20, []) == digest
    ((blob, size),) = blobs_of(paths(tmp_path))
    assert size == 20 * len(LARGE)
    assert open_graph(paths(tmp_path), digest).stream == LARGE * 20
    path = BlobStore(tmp_path / "blobs").path_of(blob)
    path.chmod(0o600)
    path.write_bytes(LARGE * 19 + LARGE[::-1])
    with pytest.raises(StoreError, match="its stream was altered"):
        open_graph(paths(tmp_path), digest, verify=False)
    assert write_graph(paths(tmp_path), LARGE * 20, []) == digest  # made again, it is whole
    assert open_graph(paths(tmp_path, NEXT), digest).stream == LARGE * 20
