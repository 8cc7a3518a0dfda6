"""Files with secrets, and whose they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpu_release.checks.finding import BROKEN, OK
from jupyter_gpu_release.checks.home import check_home, check_mode, check_to_come, check_token_file
from jupyter_gpu_release.client.home import HomePaths


def test_a_secret_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = HomePaths(tmp_path)
    tmp_path.chmod(0o700)
    for path, mode in ((home.token, 0o600), (home.ray_token, 0o640), (home.connection, 0o600)):
        path.write_text("secret")
        path.chmod(mode)
    found = [(one.check, one.level) for one in check_home(home)]
    assert found == [("home", OK), ("token", OK), ("token", BROKEN), ("home", OK)]
    assert check_mode("token", home.ray_token, 0o600).hint == f"chmod 600 {home.ray_token}"
    assert [one.level for one in check_token_file(str(home.token))] == [OK]
    assert [one.level for one in check_token_file(str(tmp_path / "none"))] == [BROKEN]
    assert not list(check_token_file(""))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert "belongs to another user" in check_mode("token", home.token, 0o600).finding


def test_a_folder_that_is_not_there_can_be_made_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert check_to_come("home", tmp_path / "a" / "b", "JUPYTER_GPU_HOME").level == OK
    broken = check_to_come("home", tmp_path / "file" / "b", "JUPYTER_GPU_HOME")
    assert (broken.level, broken.hint) == (BROKEN, "name another: JUPYTER_GPU_HOME")
    assert "is no folder" in broken.finding
    monkeypatch.setattr(os, "access", lambda *_: False)
    closed = check_to_come("home", tmp_path / "a" / "b", "JUPYTER_GPU_HOME")
    assert (closed.level, f"{tmp_path} may not be written" in closed.finding) == (BROKEN, True)
