"""Folders that named users may enter, and nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unix_users import ANN, BOB, as_user, needs_root, public_folder

from jupyter_gpu_release.host.access_lists import admit, admitted


def test_who_is_admitted_is_remembered_and_no_group_or_other_user_is(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    assert admitted(folder) == []
    admit(folder, BOB)
    admit(folder, ANN)
    admit(folder, ANN)
    assert admitted(folder) == [ANN, BOB]
    assert folder.stat().st_mode & 0o707 == 0o500


@needs_root
def test_only_they_enter_and_none_writes() -> None:
    with public_folder() as above:
        folder = above / "folder"
        folder.mkdir(mode=0o700)
        (folder / "file").write_text("")
        (folder / "file").chmod(0o444)
        assert as_user(ANN, (folder / "file").read_text) != 0
        admit(folder, ANN)
        assert as_user(ANN, (folder / "file").read_text) == 0
        assert as_user(ANN, (folder / "other").touch) != 0
        assert as_user(BOB, lambda: os.listdir(folder)) != 0


def test_a_filesystem_without_lists_says_so() -> None:
    for ask in (admitted, lambda folder: admit(folder, ANN)):
        with pytest.raises(OSError, match="not supported"):
            ask(Path("/proc/self"))
