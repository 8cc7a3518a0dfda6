"""Names of this machine's users."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from jupyter_gpu_release.host import accounts
from jupyter_gpu_release.host.accounts import account, first_uid, group_id, named_account, own_name


def test_a_user_without_an_account_has_a_name_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run under a number of their own: the gateway did not start there."""
    monkeypatch.setattr(os, "getuid", lambda: 61999)
    with pytest.raises(KeyError):
        pwd.getpwuid(61999)
    for variable in ("LOGNAME", "USER"):
        monkeypatch.delenv(variable, raising=False)
    assert own_name() == "uid61999"
    monkeypatch.setenv("USER", "trainer")
    assert own_name() == "trainer"


def test_an_operator_may_name_accounts_by_number_and_a_user_may_not() -> None:
    root, numbered = account("root"), account("0")
    assert root is not None
    assert (root.uid, root.home, numbered) == (0, pwd.getpwuid(0).pw_dir, root)
    assert named_account("0") is None
    assert (account("nobody of that name"), account("61999"), account("9" * 30)) == (None, None, None)
    assert (named_account("a\0b"), group_id("root"), group_id("17"), group_id("no group")) == (None, 0, 17, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [("# UID_MIN 5\nUID_MIN\t\t 500\nSYS_UID_MIN 101\n", 500), ("SYS_UID_MIN 1\n", 1000), (None, 1000)],
)
def test_where_accounts_of_people_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, number: int
) -> None:
    if text is not None:
        (tmp_path / "login.defs").write_text(text)
    monkeypatch.setattr(accounts, "_LOGIN_DEFS", tmp_path / "login.defs")
    assert first_uid() == number
