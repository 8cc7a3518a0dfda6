from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import blake3
import pytest
from disks import tmpfs

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store import blobs as blobs_module
from jupyter_gpu_release.store.blobs import BlobStore

CONTENT = os.urandom(3_000_000)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def left(store: BlobStore) -> list[Path]:
    return sorted(path for path in store.root.rglob("*") if path.is_file())


def test_a_blob_is_named_by_its_content_and_protected(store: BlobStore) -> None:
    digest = store.put_buffer(CONTENT)
    assert digest == blake3.blake3(CONTENT).hexdigest()
    path = store.path_of(digest)
    assert left(store) == [path]
    assert path == store.root / digest[:2] / digest
    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o400
    assert {folder.stat().st_mode & 0o777 for folder in (store.root, path.parent, store.root / "tmp")} == {0o700}
    assert store.has(digest)
    store.verify_blob(digest)


def test_mapped_blobs_are_private_writable_and_need_no_descriptor(store: BlobStore) -> None:
    digest = store.put_buffer(CONTENT)
    before = len(os.listdir("/proc/self/fd"))
    mapped = [store.map_blob(digest, len(CONTENT)) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    mapped[0][0:3] = b"new"
    assert bytes(mapped[0][:3]) == b"new"
    assert bytes(mapped[1]) == CONTENT == store.path_of(digest).read_bytes()


def test_only_what_is_touched_comes_into_memory(store: BlobStore) -> None:
    mapping = store.map_blob(store.put_buffer(bytes(64 << 20)), 64 << 20)
    before = _resident_bytes()
    assert mapping[32 << 20] == 0
    assert _resident_bytes() - before < 8 << 20


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_known_blob_is_touched_not_written(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.path_of(store.put_buffer(CONTENT))
    os.utime(path, (1, 1))
    monkeypatch.setattr(BlobStore, "_write", None)
    store.put_buffer(bytearray(CONTENT))
    assert path.stat().st_mtime > 1


@pytest.mark.parametrize("size", [100, len(CONTENT) + 1])
def test_a_blob_of_another_length_is_mended_by_the_next_writer(store: BlobStore, size: int) -> None:
    path = store.path_of(store.put_buffer(CONTENT))
    path.chmod(0o600)
    os.truncate(path, size)
    with pytest.raises(StoreError, match=f"{size} bytes instead of"):
        store.map_blob(path.name, len(CONTENT))
    store.put_buffer(CONTENT)
    assert path.read_bytes() == CONTENT


def test_altered_content_is_found_and_made_again(store: BlobStore) -> None:
    path = store.path_of(store.put_buffer(CONTENT))
    path.chmod(0o600)
    path.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    held = store.map_blob(path.name, len(CONTENT))
    with pytest.raises(StoreError, match="not what its name says"):
        store.verify_blob(path.name)
    store.put_buffer(CONTENT)
    store.verify_blob(path.name)
    assert path.read_bytes() == CONTENT
    assert held[-1] == CONTENT[-1] ^ 1  # nobody's mapping is pulled away
    assert store.sweep_temp(untouched_since_s=time.time() + 10) == len(CONTENT)


def test_what_was_made_again_meanwhile_is_not_moved_away(store: BlobStore) -> None:
    path = store.path_of(store.put_buffer(CONTENT))
    store._move_away(path, path.stat().st_ino + 1)
    store.verify_blob(path.name)


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "AB" * 32, "ab" * 31])
def test_what_is_no_digest_is_no_path(store: BlobStore, digest: str) -> None:
    with pytest.raises(StoreError, match="not the digest"):
        store.path_of(digest)


def test_a_link_in_the_place_of_a_blob_is_not_followed(store: BlobStore, tmp_path: Path) -> None:
    path = store.path_of(store.put_buffer(CONTENT))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot read"):
        store.map_blob(path.name, len(CONTENT))
    store.put_buffer(CONTENT)
    assert not path.is_symlink()
    assert path.read_bytes() == CONTENT


def test_the_name_is_that_of_the_bytes_written(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread changes the array between the first look at it and the writing."""
    changing = bytearray(CONTENT)
    write = BlobStore._write

    def late(self: BlobStore, *arguments: object, **options: object) -> str:
        changing[1000] ^= 1
        return write(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(BlobStore, "_write", late)
    digest = store.put_buffer(changing)
    assert digest == blake3.blake3(bytes(changing)).hexdigest()
    store.verify_blob(digest)


def test_an_array_that_never_stands_still(store: BlobStore) -> None:
    changing, stop = bytearray(CONTENT), threading.Event()

    def change() -> None:
        at = 0
        while not stop.is_set():
            at = (at + 4097) % len(changing)
            changing[at] = (changing[at] + 1) % 256

    thread = threading.Thread(target=change)
    thread.start()
    try:
        digests = {store.put_buffer(changing) for _ in range(10)}
        while len(digests) < 2:  # the other thread's turn has not come
            digests.add(store.put_buffer(changing))
    finally:
        stop.set()
        thread.join()
    for digest in digests:
        store.verify_blob(digest)


def test_many_writers_of_one_content(store: BlobStore, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from jupyter_gpu_release.store.blobs import BlobStore\n"
        "sys.stdin.readline(); print(BlobStore(Path(sys.argv[1])).put_buffer(bytes(2_000_000)))"
    )
    command = [sys.executable, "-c", code, str(store.root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen(command, **pipes) for _ in range(4)]  # type: ignore[call-overload]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    digests = {writer.communicate(timeout=120)[0].strip() for writer in writers}
    assert digests == {blake3.blake3(bytes(2_000_000)).hexdigest()}
    assert left(store) == [store.path_of(digests.pop())]


def test_a_filesystem_without_links(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    digest = store.put_buffer(CONTENT)
    assert left(store) == [store.path_of(digest)]


def test_several_at_once_and_one_that_fails(store: BlobStore) -> None:
    contents = [bytes([number]) * 1_000_000 for number in range(6)]
    digests = store.put_buffers(contents)
    assert [store.path_of(digest).read_bytes() for digest in digests] == contents
    bad = store.path_of(blake3.blake3(b"x" * 1000).hexdigest())
    bad.parent.mkdir(exist_ok=True)
    bad.mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        store.put_buffers([b"a" * 1000, b"x" * 1000])
    assert list((store.root / "tmp").iterdir()) == []


def test_the_pace_is_asked_for_every_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs_module, "_STEP", 1_000_000)
    pieces: list[int] = []
    BlobStore(tmp_path, pace=pieces.append).put_buffer(CONTENT)
    assert pieces == [1_000_000] * 3


# ------------------------------------------------------------------------------------ a full disk
@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    with tmpfs(folder, "4m"):
        yield folder


def test_a_full_disk_is_named_with_bytes_needed_and_free_and_nothing_is_left(small_disk: Path) -> None:
    store = BlobStore(small_disk / "blobs")
    kept = store.put_buffer(CONTENT)
    with pytest.raises(StoreError, match=rf"{small_disk}.*No space left.*7\.6 MiB are needed, 1\.\d MiB are free"):
        store.put_buffer(bytes(8_000_000))
    assert left(store) == [store.path_of(kept)]
    store.put_buffer(bytes(500_000))


# -------------------------------------------------------------------------------------- collection
def test_scan_tells_what_is_there(store: BlobStore) -> None:
    digests = {store.put_buffer(CONTENT), store.put_buffer(CONTENT[:100])}
    (store.root / "tmp" / "x.tmp").write_bytes(b"half")
    found = list(store.list_blobs())
    assert {info.digest for info in found} == digests
    assert sorted(info.bytes for info in found) == [100, len(CONTENT)]


def test_remove_spares_what_was_touched(store: BlobStore) -> None:
    digest = store.put_buffer(CONTENT)
    touched_s = store.path_of(digest).stat().st_mtime
    assert not store.remove_blob(digest, untouched_since_s=touched_s)
    assert store.has(digest)
    assert store.remove_blob(digest, untouched_since_s=touched_s + 1)
    assert left(store) == []
    assert not store.remove_blob(digest, untouched_since_s=touched_s + 1)


def test_a_blob_touched_while_it_is_being_removed_comes_back(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store.put_buffer(CONTENT)
    os.utime(store.path_of(digest), (1, 1))
    rename = os.rename

    def touched_first(*names: Path) -> None:
        store.put_buffer(CONTENT)
        rename(*names)

    monkeypatch.setattr(os, "rename", touched_first)
    assert not store.remove_blob(digest, untouched_since_s=1000)
    assert left(store) == [store.path_of(digest)]


def test_what_killed_writers_and_removers_left_is_swept(store: BlobStore) -> None:
    digest = store.put_buffer(CONTENT)
    old, young = store.root / "tmp" / "old.tmp", store.root / "tmp" / "young.tmp"
    old.write_bytes(b"12345")
    young.write_bytes(b"1")
    os.utime(old, (1, 1))
    store.path_of(digest).rename(store.root / "tmp" / f"{digest}.abcd.gone")
    assert store.sweep_temp(untouched_since_s=1000) == 5
    assert left(store) == sorted([young, store.path_of(digest)])


def test_what_is_there_is_touched_while_the_rest_is_still_written(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    first, second = b"1" * 4096, b"2" * 4096
    path = store.path_of(blake3.blake3(first).hexdigest())
    monkeypatch.setattr(blobs_module, "_KEEP_S", 0.01)
    put = BlobStore(store.root).put_buffer

    def slow(buffer: bytes, *, durable: bool = True) -> str:
        if buffer is second:  # takes longer than the grace of collection
            until(path.exists, "the first is there")
            os.utime(path, (1, 1))
            until(lambda: path.stat().st_mtime > 1, "the first is touched again")
        return put(buffer, durable=durable)

    monkeypatch.setattr(store, "put_buffer", slow)
    assert len(store.put_buffers([first, second])) == 2
    assert store.touch_blobs(["0" * 64, path.name, "1" * 64]) == ["0" * 64, "1" * 64]
