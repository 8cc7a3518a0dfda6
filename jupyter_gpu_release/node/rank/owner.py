"""Becoming the owner of the run: a rank is forked from root's process, and loads nothing of a user before this."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from ...adapters.registry import loaded_adapters
from ...errors import ClusterError
from ...host import process_control
from ...host.privileges import drop_privileges, set_dumpable
from ...protocol.config import UnixUser
from ...units import format_bytes

_UMASK = 0o022
#: of root's environment: folders of root's, and where its session is
_ROOTS = ("MAIL", "MPLCONFIGDIR", "OLDPWD", "PWD", "SUDO_COMMAND", "SUDO_GID", "SUDO_UID", "SUDO_USER")
_LIMIT_HINT = "the operator changes it in the file that JUPYTER_GPU_UNIX_USERS names"


def become_owner(owner: UnixUser, keep: Collection[int], supervisor: int) -> None:
    """Be this user for good, in all threads; raises :class:`ClusterError`, and then nothing may be done as a cell.

    Parameters
    ----------
    keep
        Descriptors of the rank's own; other sockets and pipes are closed.
    supervisor
        Parent with which this process ends: the system forgets that when the user changes.
    """
    _set_limits(owner.name, owner.limits)  # root may raise them, too
    try:
        drop_privileges(owner.uid, owner.gid, owner.groups)
    except OSError as error:
        raise ClusterError(f"the cell cannot run as {owner.name} (uid {owner.uid}): {error}") from error
    _close_inherited(keep)
    process_control.die_with_parent(supervisor, signal.SIGKILL)
    os.umask(_UMASK)
    _set_environment(owner)
    set_dumpable(True)  # from here on it is the user's, who may debug it


def _set_limits(user: str, limits: Mapping[str, tuple[int, int]]) -> None:
    most = limits.get("as", (resource.RLIM_INFINITY, 0))[0]
    if "as" in limits and 0 <= most <= (taken := _addresses_bytes()):
        may, need = format_bytes(most), format_bytes(taken)
        raise ClusterError(
            f"cells of {user} may have {may} of addresses (`as`), and libraries take {need}", hint=_LIMIT_HINT
        )
    for name, pair in limits.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), pair)
        except (ValueError, OSError) as error:
            raise ClusterError(
                f"the limit `{name}` of {user} cannot be {pair[1]} on this node: {error}", hint=_LIMIT_HINT
            ) from error


def _addresses_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _close_inherited(keep: Collection[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        with contextlib.suppress(OSError):  # the listing's own
            mode = os.fstat(number).st_mode
            if number > 2 and number not in keep and (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):
                os.close(number)


def _set_environment(owner: UnixUser) -> None:
    for name in [name for name in os.environ if name in _ROOTS or name.startswith("XDG_")]:
        del os.environ[name]
    home = owner.home if owner.home and os.access(owner.home, os.X_OK) else ""
    os.environ.update(HOME=home or "/", USER=owner.name, LOGNAME=owner.name, SHELL=owner.shell or "/bin/sh")
    for adapter in loaded_adapters():
        adapter.forget_user()
