"""Names of this machine's users."""

from __future__ import annotations

import os
import pwd

import pytest

from jupyter_gpu_release.host.accounts import own_name


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
