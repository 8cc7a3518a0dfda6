"""Files of a run: nothing behind a link, and no odd file hides the others."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu_release.errors import NoSuchRunError, StoreError
from jupyter_gpu_release.host.threads import StoreThreads
from jupyter_gpu_release.protocol.runs import FileInfo
from jupyter_gpu_release.server_extension.runs import files, page
from jupyter_gpu_release.server_extension.runs.files import list_files, open_file, open_record
from jupyter_gpu_release.server_extension.runs.page import Listings
from jupyter_gpu_release.store.event_log import read_events
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.stored_run import StoredRun

_RUN, _OTHER = "20261123-010203-abcdef01", "20261123-010203-abcdef02"


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    found = RunPaths.of(tmp_path, _RUN)
    found.files.mkdir(parents=True)
    (found.files / "own.txt").write_text("own")
    return found


def _replace_files(paths: RunPaths, elsewhere: Path) -> None:
    os.rename(paths.files, paths.folder / "x")
    paths.files.symlink_to(elsewhere / "files")


def _replace_run(paths: RunPaths, elsewhere: Path) -> None:
    os.rename(paths.folder, paths.folder.with_name(_OTHER))
    paths.folder.symlink_to(elsewhere)


@pytest.mark.parametrize("replace", [_replace_files, _replace_run])
def test_a_folder_that_a_cell_replaced_by_a_link_is_empty(
    replace: Callable[[RunPaths, Path], None], paths: RunPaths, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "files").mkdir(parents=True)
    (elsewhere / "files" / "secret").write_text("secret")
    assert [file.path for file in list_files(paths)] == ["own.txt"]
    replace(paths, elsewhere)
    assert list_files(paths) == []
    with pytest.raises(NoSuchRunError):
        open_file(paths, "secret")


def test_a_record_behind_a_link_is_not_read(paths: RunPaths, tmp_path: Path) -> None:
    facts = {"schema_version": 1, "run": _RUN, "user": "ada", "state": "succeeded"}
    (tmp_path / "elsewhere").write_text(json.dumps(facts))
    paths.manifest.write_text(json.dumps(facts))
    assert StoredRun.read(paths, opener=open_record).view.user == "ada"
    paths.manifest.unlink()
    for link in (paths.manifest, paths.events):
        link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot read"):
        StoredRun.read(paths, opener=open_record)
    with pytest.raises(StoreError, match="cannot read"):
        list(read_events(paths.events, opener=open_record))


def test_a_name_that_is_no_text_hides_no_other_file(paths: RunPaths) -> None:
    os.close(os.open(os.fsencode(paths.files) + b"/a\xff", os.O_CREAT | os.O_WRONLY))
    assert [file["path"] for file in msgspec.json.decode(msgspec.json.encode(list_files(paths)))] == ["own.txt"]


def test_a_file_that_goes_while_it_is_looked_at_hides_no_other(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = paths.files / "ckpt.tmp"
    passing.write_text("")
    scan = os.scandir

    def scan_and_lose(folder: object) -> object:
        entries = list(scan(folder))  # type: ignore[call-overload]
        passing.unlink()
        return _Entries(entries)

    monkeypatch.setattr(files.os, "scandir", scan_and_lose)
    assert [file.path for file in list_files(paths)] == ["own.txt"]


class _Entries(list[object]):
    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        return


def test_folders_in_folders_are_listed_to_a_bound(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    deepest = paths.files
    for _ in range(60):
        deepest /= "folder"
    deepest.mkdir(parents=True)
    for folder in (deepest, paths.files / "folder"):
        (folder / "below.txt").write_text("")
    assert [file.path for file in list_files(paths)] == ["folder/below.txt", "own.txt"]
    monkeypatch.setattr(files, "_MOST_ENTRIES", 1)
    assert len(list_files(paths)) <= 1


def test_a_folder_is_walked_once_at_a_time_and_again_when_the_run_changes(
    paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages ask every second: a store that takes its time would never catch up."""
    walks, may_end = 0, threading.Event()

    def walk(paths: RunPaths) -> list[FileInfo]:
        nonlocal walks
        walks += 1
        may_end.wait()
        return list_files(paths)

    async def ask() -> None:
        listings = Listings(StoreThreads())
        asked = [asyncio.ensure_future(listings.of(paths, "running")) for _ in range(5)]
        await asyncio.sleep(0)
        may_end.set()
        assert [[file.path for file in found] for found in await asyncio.gather(*asked)] == [["own.txt"]] * 5
        (paths.files / "more.txt").write_text("more")
        await listings.of(paths, "running")
        assert walks == 1
        assert len(await listings.of(paths, "succeeded")) == 2
        assert walks == 2

    monkeypatch.setattr(page, "list_files", walk)
    asyncio.run(ask())
