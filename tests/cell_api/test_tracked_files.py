"""Tracked data files: what they were, whether they still are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from blake3 import blake3

from jupyter_gpu_release.cell_api import tracked_files
from jupyter_gpu_release.cell_api.tracked_files import FileDigests, Tracking


@pytest.fixture
def cell() -> Tracking:
    made = Tracking()
    made.start_recording()
    return made


def test_outside_of_a_cell_nothing_is_recorded(tmp_path: Path) -> None:
    assert tracked_files.track(tmp_path / "none") == tmp_path / "none"
    assert Tracking().track_path("none") == "none"


def test_a_file_is_recorded_by_its_content(cell: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.bin").write_bytes(b"x" * (9 << 20))
    assert cell.track_path("a.bin") == "a.bin"
    (found,) = cell.tracked_files()
    assert (found.path, found.bytes) == (str(tmp_path / "a.bin"), 9 << 20)
    assert found.digest == blake3(b"x" * (9 << 20)).hexdigest()


def test_what_changes_while_the_cell_runs_fits_nothing(cell: Tracking, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one")
    cell.track_path(file)
    file.write_text("two")
    cell.track_path(file)
    (found,) = cell.tracked_files()
    assert found.digest == ""
    assert FileDigests().explain_change(found) == f"{file} has changed"


def test_a_folder_in_which_a_file_changes_while_it_is_read_is_not_known(
    cell: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").touch()

    def read(path: str) -> str:
        Path(path).write_text("more")
        return "0" * 64

    monkeypatch.setattr(tracked_files, "_digest", read)
    cell.track_path(tmp_path)
    assert [found.digest for found in cell.tracked_files()] == ["", ""]


def test_a_folder_stands_for_all_that_is_in_it(cell: Tracking, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_text("1")
    cell.track_path(folder)
    whole, file = cell.tracked_files()
    assert whole.path == f"{folder}/"
    assert file.path == str(folder / "deep" / "a")
    look = FileDigests()
    assert look.explain_change(whole) == ""
    (folder / "b").write_text("")
    assert look.explain_change(whole) == f"{folder}/ has changed"
    (folder / "b").unlink()
    assert look.explain_change(whole) == ""
    os.rename(folder / "deep" / "a", folder / "deep" / "c")
    assert look.explain_change(whole)
    assert look.explain_change(file) == f"{file.path} is not there"


def test_files_of_a_folder_come_in_one_order(cell: Tracking, tmp_path: Path) -> None:
    for name in "dbeac":
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    cell.track_path(tmp_path)
    assert [file.path for file in cell.tracked_files()[1:]] == [str(tmp_path / name / "file") for name in "abcde"]


def test_the_same_size_and_time_is_not_the_same_content(tmp_path: Path) -> None:
    file, look = tmp_path / "a", FileDigests()
    file.write_text("one")
    before, found = file.stat(), look.read_file(str(file))
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert look.explain_change(found) == f"{file} has changed"


def test_what_is_not_there_or_too_much_is_named(
    cell: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        cell.track_path(tmp_path / "none")
    monkeypatch.setattr(tracked_files, "MOST_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_text(name)
    with pytest.raises(ValueError, match="more than 2 files below"):
        cell.track_path(tmp_path)
