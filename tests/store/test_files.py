"""Private folders and files that appear whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.store import files
from jupyter_gpu_release.store.files import Pace, make_private_folder, write_atomic


def test_every_folder_on_the_way_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    make_private_folder(tmp_path / "a" / "b" / "c")  # twice is fine
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c")}
    assert modes == {0o700}


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(StoreError, match=r"cannot make the folder .*a/b"):
        make_private_folder(tmp_path / "a" / "b")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def chunks():
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        write_atomic(tmp_path / "x", chunks())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "synced"), [({}, ["file", "folder"]), ({"name_durable": False}, ["file"]), ({"durable": False}, [])]
)
def test_what_is_durable_is_asked_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool], synced: list[str]
) -> None:
    seen: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomic(tmp_path / "x", [b"text"], **options)
    assert seen == synced
    assert (tmp_path / "x").read_bytes() == b"text"


def test_writers_that_share_a_pace_share_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(files, "sleep", waits.append)
    pace = Pace(bytes_per_s=1)
    for _ in range(2):
        pace.wrote(1000)
    assert waits[1] > 1500
    assert pace.written == 2000
