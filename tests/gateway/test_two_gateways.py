"""Two clusters on one store: collecting in one frees nothing that the other has, makes or is about to write."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from store_bed import DAY_S, StoreBed, blob, collect, gone, is_whole, run_id

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.protocol.config import RetentionPolicy
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.gc.trash import Trash
from jupyter_gpu_release.store.layout import RunPaths


@pytest.fixture
def ours(tmp_path: Path) -> StoreBed:
    return StoreBed(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path, ours: StoreBed) -> StoreBed:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    return StoreBed(tmp_path / "theirs", store=ours.store)


def test_blobs_and_runs_of_the_other_cluster_stay(ours: StoreBed, theirs: StoreBed) -> None:
    old = ours.add(1, blob("a"), blob("b"))
    theirs.add(2, blob("b"), blob("c"))
    theirs.add(3, blob("d"), state="running")
    ours.age_blobs()
    document = collect(ours)
    assert (gone(document), document.blobs) == ([old], 1)
    assert [is_whole(theirs, number) for number in (2, 3)] == [True, True]
    assert any("2 runs on the store are not in this gateway's ledger" in note for note in document.notes)
    assert (gone(collect(theirs)), len(ours.blobs())) == ([run_id(2)], 1)  # the running one's


def test_quota_and_count_are_of_the_own_runs_only(ours: StoreBed, theirs: StoreBed) -> None:
    ours.add(1, blob("a"))
    for number in (2, 3, 4):
        theirs.add(number, blob("a"), blob("b"))
    assert gone(collect(ours, RetentionPolicy(keep=1, quota_bytes=(3 << 20) // 2))) == []


def test_blobs_that_the_other_cluster_has_been_saving_for_days_stay(ours: StoreBed, theirs: StoreBed) -> None:
    ours.add(1)
    theirs.add(2, blob("a"), state="persisting", gone_at=time.time() - 3 * DAY_S)
    theirs.paths(2).values.unlink()  # written last
    theirs.age_blobs(days=2.5)  # put half a day after its save began
    document = collect(ours)
    assert document.blobs == 0
    assert any(f"run {run_id(2)} of another cluster has been writing" in note for note in document.notes)
    shutil.rmtree(theirs.paths(2).folder)
    assert collect(ours).blobs == 1


def test_what_is_moved_away_while_the_other_gateway_empties_the_trash_is_not_forgotten(
    ours: StoreBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ours.add(1, blob("a"))
    folder, rename = ours.paths(1).folder, os.rename
    emptied = []

    def empty_first(source: Path, target: Path) -> None:
        emptied.append(target)
        shutil.rmtree(Path(target).parent)
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", empty_first)
        with pytest.raises(StoreError, match="was removed while"):
            Trash(ours.store).remove_results(run, "too old", 5.0)
    assert emptied
    assert RunPaths(folder).values.exists()
    Trash(ours.store).remove_results(run, "too old", 5.0)
    assert os.listdir(folder) == ["manifest.json"]


def test_a_folder_that_the_other_gateway_took_first_is_fine(ours: StoreBed, monkeypatch: pytest.MonkeyPatch) -> None:
    run, listdir = ours.add(1), os.listdir

    def taken(folder: Path) -> list[str]:
        shutil.rmtree(folder)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", taken)
    Trash(ours.store).remove_folder(run)
    assert not ours.paths(1).folder.exists()


def test_a_blob_that_the_other_gateway_swept_while_it_was_removed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    digest, rename = blobs.put_buffer(blob("a"), durable=False), os.rename

    def swept(source: Path, target: Path) -> None:
        rename(source, target)
        Path(target).unlink()

    monkeypatch.setattr(os, "rename", swept)
    assert blobs.remove_blob(digest, untouched_since_s=time.time() + 60) is False
    assert not blobs.has(digest)
