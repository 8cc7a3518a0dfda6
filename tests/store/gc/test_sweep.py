"""Blobs are freed beside processes that write and read, and nothing that anyone refers to is ever lost."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.gc.sweep import store_time_s, sweep_blobs
from jupyter_gpu_release.store.graph_file import digest_in, open_graph, write_graph
from jupyter_gpu_release.store.run_contents import measure_folder, run_folders
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store

MIB = 1 << 20


def run_id(number: int) -> str:
    return f"20260101-000000-{number:08x}"


def write(store: Path, number: int, *letters: bytes) -> Path:
    path = create_run_folder(store, run_id(number)).values
    write_graph(path, b"stream", [letter * MIB for letter in letters], durable=False)
    return path


def footprints(store: Path) -> list[object]:
    return [measure_folder(folder) for folder in run_folders(store)]


def sweep(store: Path, grace_s: float = 0.0) -> int:
    before_s = store_time_s(store) - grace_s + 1e-3  # before the footprints: what is saved meanwhile is not in them
    return sweep_blobs(store, footprints(store), before_s).blobs


def test_what_nothing_refers_to_goes_after_the_grace(tmp_path: Path) -> None:
    write(tmp_path, 1, b"a", b"b")
    write(tmp_path, 2, b"b", b"c").unlink()
    assert sweep(tmp_path, grace_s=3600) == 0
    assert sweep(tmp_path) == 1
    assert len(list(BlobStore(tmp_path / "blobs").list_blobs())) == 2
    path = tmp_path / "runs" / run_id(1) / "values.graph"
    assert [bytes(b[:1]) for b in open_graph(path, digest_in(path), verify=True).buffers] == [b"a", b"b"]


def test_inputs_and_published_values_count(tmp_path: Path) -> None:
    paths = create_run_folder(tmp_path, run_id(1))
    (paths.folder / "published").mkdir()
    write_graph(paths.inputs, b"", [b"i" * MIB], durable=False)
    write_graph(paths.folder / "published" / "loss.graph", b"", [b"p" * MIB], durable=False, blobs=_blobs(tmp_path))
    assert sweep(tmp_path) == 0


def test_what_the_cell_itself_wrote_does_not_count(tmp_path: Path) -> None:
    paths = create_run_folder(tmp_path, run_id(1))
    write_graph(paths.files / "mine.graph", b"", [b"i" * MIB], durable=False, blobs=_blobs(tmp_path))
    assert sweep(tmp_path) == 1


def _blobs(store: Path) -> BlobStore:
    return BlobStore(store / "blobs")


@pytest.mark.parametrize("number", [2, 3])
def test_a_graph_that_came_after_the_first_look_counts(tmp_path: Path, number: int) -> None:
    write(tmp_path, 1, b"a").unlink()
    os.utime(write(tmp_path, 3, b"z"), (1, 1))
    seen = footprints(tmp_path)
    write(tmp_path, number, b"a")
    old_s = time.time() - 99
    for path in tmp_path.glob("blobs/??/*"):
        os.utime(path, (old_s, old_s))  # as if its touch had been missed
    assert sweep_blobs(tmp_path, seen, time.time() - 50).blobs == 0  # type: ignore[arg-type]
    assert sweep(tmp_path) == number - 2, "what another graph was in the place of"


def test_a_blob_that_was_put_between_look_and_removal_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, b"a").unlink()
    old_s = time.time() - 99
    for path in tmp_path.glob("blobs/??/*"):
        os.utime(path, (old_s, old_s))
    remove = BlobStore.remove_blob

    def put_first(self: BlobStore, digest: str, *, untouched_since_s: float) -> bool:
        BlobStore(self.root).put_buffer(b"a" * MIB, durable=False)
        return remove(self, digest, untouched_since_s=untouched_since_s)

    monkeypatch.setattr(BlobStore, "remove_blob", put_first)
    assert sweep_blobs(tmp_path, [], time.time() - 50).blobs == 0
    assert len(list(_blobs(tmp_path).list_blobs())) == 1


def test_a_blob_that_a_killed_remover_moved_aside_comes_back(tmp_path: Path) -> None:
    path = write(tmp_path, 1, b"a")
    (blob,) = _blobs(tmp_path).list_blobs()
    os.rename(_blobs(tmp_path).path_of(blob.digest), tmp_path / "blobs" / "tmp" / f"{blob.digest}.1234.gone")
    with pytest.raises(StoreError):
        open_graph(path, digest_in(path))
    (tmp_path / "blobs" / "tmp" / "writer.tmp").write_bytes(b"half")
    assert sweep(tmp_path) == 0
    assert not os.listdir(tmp_path / "blobs" / "tmp")
    assert len(open_graph(path, digest_in(path), verify=True).buffers) == 1


@pytest.mark.parametrize(("head", "freed"), [(b"jgr-graph-3", 0), (b"jgr-graph-2", 1), (b"jgr-graph-x", 1), (b"", 1)])
def test_only_what_a_newer_version_may_read_holds_all_blobs(tmp_path: Path, head: bytes, freed: int) -> None:
    write(tmp_path, 1, b"a").unlink()
    path = write(tmp_path, 2)
    path.write_bytes(path.read_bytes().replace(b"jgr-graph-1", head))
    assert sweep(tmp_path) == freed


#: writes runs of which neighbours share blobs, withdraws some of them, prints which are whole
_WRITER = """
import random, shutil, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_sweep import write
store, first = Path(sys.argv[2]), int(sys.argv[3])
saves = store / f"saves-{first}"
for number in range(first, first + 60):
    saves.touch()
    path = write(store, number, b"abcdefgh"[number % 8:][:1], bytes([97 + number % 5]))
    saves.unlink()
    if number % 3 == 0:
        shutil.rmtree(path.parent)
    else:
        print(path, flush=True)
"""
#: holds values open for as long as it lives, and reads all of them again and again
_READER = """
import sys
from pathlib import Path
from jupyter_gpu_release.store.graph_file import digest_in, open_graph
held = []
for line in sys.stdin:
    path = Path(line.strip())
    held.append(open_graph(path, digest_in(path), verify=True))
    for graph in held:
        assert all(len(set(bytes(buffer[::65536]))) == 1 for buffer in graph.buffers)
    print(len(held), flush=True)
"""


def test_collecting_in_a_loop_beside_writers_and_readers(tmp_path: Path, until: Callable[..., None]) -> None:
    make_store(tmp_path)
    here = str(Path(__file__).parent)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, here, str(tmp_path), str(first)], stdout=subprocess.PIPE, text=True
        )
        for first in (0, 1000)
    ]
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    freed, whole = 0, []
    while any(writer.poll() is None for writer in writers):
        before_s = _before_saves_s(tmp_path) - 0.3
        freed += sweep_blobs(tmp_path, footprints(tmp_path), before_s).blobs  # type: ignore[arg-type]
    for writer in writers:
        whole += writer.communicate(timeout=120)[0].split()
        assert writer.returncode == 0
    _, problems = reader.communicate("\n".join(whole), timeout=120)
    until(lambda: sweep(tmp_path, grace_s=0.3) == 0 and not _garbage(tmp_path), "all garbage freed")
    assert (reader.returncode, problems) == (0, "")
    assert len(whole) == 80
    for path in map(Path, whole):
        assert len(open_graph(path, digest_in(path), verify=True).buffers) == 2
    assert freed + len(list(_blobs(tmp_path).list_blobs())) >= 8


def _before_saves_s(store: Path) -> float:
    """A time before all saves that are under way from now on: on a busy machine no fixed grace is long enough.

    The clock is read first, for a save that is not seen below may begin any time later.
    """
    began = [store_time_s(store)]
    for saves in store.glob("saves-*"):
        with contextlib.suppress(FileNotFoundError):
            began.append(saves.stat().st_mtime)
    return min(began)


def _garbage(store: Path) -> set[str]:
    known = {name for found in footprints(store) for name in found.shared}  # type: ignore[attr-defined]
    return {blob.digest for blob in _blobs(store).list_blobs()} - known


def test_mapped_values_outlive_their_collection_on_a_local_disk(tmp_path: Path) -> None:
    path = write(tmp_path, 1, b"a")
    graph = open_graph(path, digest_in(path), verify=False)
    path.unlink()
    assert sweep(tmp_path) == 1
    assert bytes(graph.buffers[0]) == b"a" * MIB
