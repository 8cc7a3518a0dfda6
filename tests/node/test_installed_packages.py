"""The agent notices new packages, and waits for no filesystem meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from jupyter_gpu_release.node import installed_packages
from jupyter_gpu_release.node.installed_packages import PackageWatch


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(installed_packages, "_possible_folders", lambda: [str(tmp_path)])
    return tmp_path


def test_what_is_installed_is_noticed_once(folder: Path) -> None:
    async def look() -> list[bool]:
        watch = PackageWatch()
        await watch.has_changed()
        found = [await watch.has_changed()]
        (folder / "new-1.0.dist-info").mkdir()
        return [*found, await watch.has_changed(), await watch.has_changed()]

    assert asyncio.run(look()) == [False, True, False]


def test_a_folder_that_vanishes_as_it_is_read_ends_no_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanished() -> str:
        raise FileNotFoundError(2, "No such file or directory", "old-1.0.dist-info")

    async def look() -> list[bool]:
        watch = PackageWatch()
        await watch.has_changed()
        (folder / "new-1.0.dist-info").mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(installed_packages, "packages_digest", vanished)
            found = [await watch.has_changed()]
        return [*found, await watch.has_changed()]

    assert asyncio.run(look()) == [False, True]


def test_a_folder_that_does_not_answer_holds_nothing_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = threading.Event(), []

    def hang() -> list[str]:
        asked.append(threading.current_thread())
        answers.wait()
        return [str(folder)]

    monkeypatch.setattr(installed_packages, "_possible_folders", hang)

    async def look() -> list[bool]:
        watch = PackageWatch()
        found = [await watch.has_changed(), await watch.has_changed()]
        answers.set()
        return [*found, await watch.has_changed()]

    assert asyncio.run(look()) == [False, False, True]
    assert asked[0] is not threading.main_thread()
    assert len(set(asked)) == 1, "one look at a time"
