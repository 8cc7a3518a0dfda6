"""Accounts and groups of this machine, by name or number."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
from pathlib import Path

from ..protocol.config import UnixUser

_LOGIN_DEFS = Path("/etc/login.defs")
_FIRST_UID = 1000


def account(name: str) -> UnixUser | None:
    """The account with this name or number, as an operator writes it; None where there is none."""
    if not name.isdecimal():
        return named_account(name)
    try:
        return _account(pwd.getpwuid(int(name)))
    except (KeyError, OverflowError):
        return None


def named_account(name: str) -> UnixUser | None:
    """The account with this very name, for names that users may choose: a number is a name here; None without one."""
    try:
        return _account(pwd.getpwnam(name))
    except (KeyError, ValueError):  # no account's name has a NUL in it, or half a surrogate pair
        return None


def _account(entry: pwd.struct_passwd) -> UnixUser:
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return UnixUser(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell)


def own_name() -> str:
    """The name of this process's user; where its number has none, as in containers, ``USER``, or made of the number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("LOGNAME") or os.environ.get("USER") or f"uid{os.getuid()}"


def group_id(name: str) -> int | None:
    """Number of a group by its name or number; None where there is none."""
    with contextlib.suppress(KeyError):
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    return None


def first_uid() -> int:
    """The least number of a person's account, as this system has it."""
    with contextlib.suppress(OSError):
        found = re.search(r"^UID_MIN\s+(\d+)", _LOGIN_DEFS.read_text(), re.MULTILINE)
        if found:
            return int(found[1])
    return _FIRST_UID
