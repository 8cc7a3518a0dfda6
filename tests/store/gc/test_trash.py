"""Results are removed in two steps that may be interrupted anywhere; what is not ours to remove stays."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from forked import killed_before_change
from unix_users import ANN, as_user, public_folder

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store.gc.sweep import store_time_s
from jupyter_gpu_release.store.gc.trash import Trash
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, read_manifest, write_manifest

RUN, OTHER = "20260101-000000-00000001", "20260101-000000-00000002"


def make_run(store: Path, run: str = RUN) -> RunPaths:
    paths = create_run_folder(store, run)
    write_manifest(paths, {"run": run, "state": "succeeded"}, durable=False)
    for path in (paths.values, paths.inputs, paths.events, paths.files / "deep" / "model.bin"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
    return paths


def assert_only_the_manifest_is_left(store: Path, run: str = RUN) -> None:
    paths = RunPaths.of(store, run)
    assert os.listdir(paths.folder) == ["manifest.json"]
    manifest = read_manifest(paths)
    assert (manifest["run"], manifest["collected_at"], manifest["collected_because"]) == (run, 5.0, "too old")
    assert list(Trash(store).unfinished_runs()) == []


def test_the_manifest_stays_and_says_it(tmp_path: Path) -> None:
    make_run(tmp_path)
    other = make_run(tmp_path, OTHER)
    (tmp_path / "trash" / RUN / "files" / "left by an earlier attempt").mkdir(parents=True)
    Trash(tmp_path).remove_results(RUN, "too old", 5.0)
    assert_only_the_manifest_is_left(tmp_path)
    assert other.values.exists()
    Trash(tmp_path).remove_results(RUN, "another reason", 9.0)  # again: nothing happens
    assert_only_the_manifest_is_left(tmp_path)


def test_read_only_folders_of_the_cell_are_removed_too(tmp_path: Path) -> None:
    def remove(store: Path) -> None:
        paths = make_run(store)
        os.chmod(paths.files / "deep", 0o500)
        Trash(store).remove_results(RUN, "too old", 5.0)
        assert_only_the_manifest_is_left(store)

    if os.geteuid():
        remove(tmp_path)
        return
    with public_folder() as folder:  # root may write anywhere
        os.chown(folder, ANN, ANN)
        assert as_user(ANN, partial(remove, folder)) == 0


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("precious")
    paths = make_run(tmp_path)
    (paths.files / "link").symlink_to(outside)
    (paths.folder / "published").symlink_to(outside)
    Trash(tmp_path).remove_results(RUN, "too old", 5.0)
    assert_only_the_manifest_is_left(tmp_path)
    assert (outside / "keep").read_text() == "precious"


@pytest.mark.parametrize("make", [Path.touch, partial(Path.symlink_to, target="../runs")])
def test_an_entry_of_the_trash_that_is_no_folder_is_deleted(make: Callable[[Path], None], tmp_path: Path) -> None:
    make_run(tmp_path, OTHER)
    trash = Trash(tmp_path)
    trash.make_folder()
    make(trash.folder / RUN)
    for _ in range(2):
        trash.delete_entry(RUN)
        assert os.listdir(trash.folder) == []
    assert RunPaths.of(tmp_path, OTHER).values.exists()


def test_a_run_that_is_a_link_is_named_and_not_touched(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    make_run(elsewhere)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / RUN).symlink_to(elsewhere / "runs" / RUN)
    with pytest.raises(StoreError, match=rf"{RUN} is a symbolic link"):
        Trash(tmp_path).remove_results(RUN, "too old", 5.0)
    assert (elsewhere / "runs" / RUN / "values.graph").exists()


def test_a_trash_that_is_a_link_is_refused(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "trash").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="trash is a symbolic link"):
        Trash(tmp_path).remove_results(RUN, "too old", 5.0)
    assert paths.values.exists()


def test_a_damaged_manifest_is_left_as_it_is(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    paths.manifest.write_bytes(b"{half")
    Trash(tmp_path).remove_results(RUN, "too old", 5.0)
    assert os.listdir(paths.folder) == ["manifest.json"]
    assert paths.manifest.read_bytes() == b"{half"


def test_a_folder_that_never_was_a_run_goes_whole(tmp_path: Path) -> None:
    paths = make_run(tmp_path)
    Trash(tmp_path).remove_folder(RUN)
    assert not paths.folder.exists()
    assert list(Trash(tmp_path).unfinished_runs()) == []


_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod")


def test_killed_at_every_step_it_is_finished_the_next_time(tmp_path: Path) -> None:
    for step in range(100):
        store = tmp_path / str(step)
        paths = make_run(store)
        trash = Trash(store)
        status = killed_before_change(step, lambda trash=trash: trash.remove_results(RUN, "too old", 5.0), _CHANGES)
        assert read_manifest(paths)["run"] == RUN  # it can be shown at any moment
        assert not paths.values.exists() or (paths.events.exists() and paths.files.exists())
        Trash(store).remove_results(RUN, "too old", 5.0)
        assert_only_the_manifest_is_left(store)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert step > 10


def test_a_store_that_is_away_is_not_made_anew_by_a_collection(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not there"):
        store_time_s(tmp_path)
    with pytest.raises(StoreError, match="is not there"):
        Trash(tmp_path).remove_results(RUN, "too old", 5.0)
    assert list(tmp_path.iterdir()) == []
