"""Users whose files this process loads. Loading runs code, so these are its own and those of users that are trusted."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from ...errors import OptionError, StoreError

#: account (name or number) that the cluster's agents run as, where that is not this user's
VARIABLE = "JUPYTER_GPU_SERVICE_USER"
#: of the process, not an argument: it holds for all that is loaded, also by code that only knows a path
_trusted: set[int] = set()


def trust(uid: int | None) -> None:
    """Load files of this user from now on; None: of nobody else."""
    if uid is not None:
        _trusted.add(uid)


def trusts_others() -> bool:
    """Tell if files of another user are loaded, too: the store is a group's."""
    return bool(_trusted) or bool(os.environ.get(VARIABLE))


def service_uid(name: str) -> int:
    """Number of an account; raises :class:`OptionError` for one that there is not."""
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise OptionError(
            f"{VARIABLE}={name}: there is no such user here", hint="name the account or its uid"
        ) from None


def is_trusted(uid: int) -> bool:
    """Tell if files of this user may be loaded."""
    if uid == os.geteuid() or uid in _trusted:
        return True
    named = os.environ.get(VARIABLE, "")
    return bool(named) and uid == service_uid(named)


def check_owner(path: Path, facts: os.stat_result, *, doing: str) -> None:
    """Raise :class:`StoreError` for a file of somebody who is not trusted. ``doing``: what is not done then."""
    if not is_trusted(facts.st_uid):
        text = f"{path} belongs to user {facts.st_uid}, not to this one: not {doing}"
        hint = f"check who writes there; if user {facts.st_uid} runs the cluster, set {VARIABLE}={facts.st_uid}"
        raise StoreError(text, hint=hint)
