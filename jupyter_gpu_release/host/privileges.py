"""Giving up the rights of root, for good."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from pathlib import Path

_PR_SET_DUMPABLE = 4


def drop_privileges(uid: int, gid: int, groups: Collection[int] = ()) -> None:
    """Give up root for good, in all threads; raises OSError where anything of it is left."""
    if uid == 0:
        raise PermissionError(1, "no cell runs as root")
    set_dumpable(False)
    os.setgroups(sorted({gid, *groups}))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    status = Path("/proc/self/status").read_text().splitlines()
    left = {line.split()[1].strip("0") for line in status if line.startswith(("CapEff", "CapPrm", "CapAmb"))}
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid) or left != {""}:
        raise PermissionError(1, "the system has left it rights of root")


def set_dumpable(is_dumpable: bool) -> None:
    """Let other processes of its user look into this one and trace it, or not."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, int(is_dumpable), 0, 0, 0)
