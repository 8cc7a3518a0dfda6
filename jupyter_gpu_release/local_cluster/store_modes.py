"""Mode of the store that ``JUPYTER_GPU_STORE_MODE`` names, its group, and the file of users' accounts and limits."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from ..errors import OptionError
from ..protocol.config import StoreMode, UnixUser
from ..settings.setting import read_text
from ..settings.table import VARIABLES
from ..settings.yaml_document import YamlDocument
from ..units import parse_bytes, parse_seconds

MODE, GROUP, USERS = (VARIABLES[name].variable for name in ("store_mode", "store_group", "unix_users"))
_HINT = "see `jupyter gpu docs operate/store`"
#: limits with the names that the system has for them (``man getrlimit``), by what their numbers are
_SIZES = ("as", "core", "data", "fsize", "memlock", "stack")
_COUNTS = ("nofile", "nproc", "sigpending")
_TIMES = ("cpu",)
_UNLIMITED = -1
Limits = dict[str, tuple[int, int]]


class StoreSettings(TypedDict):
    """Settings of :class:`.GatewayConfig` about the Unix users on the store."""

    store_mode: StoreMode
    store_group: str
    unix_users: dict[str, str | UnixUser]
    user_limits: dict[str, Limits]


def store_settings(environment: Mapping[str, str]) -> StoreSettings:
    """The settings in these variables; raises :class:`OptionError` for what does not fit together."""
    mode = StoreMode(VARIABLES["store_mode"].given(environment))
    group = environment.get(GROUP, "")
    if mode is StoreMode.GROUP and not group:
        raise OptionError(f"{MODE}=group: which group?", hint=f"name it in {GROUP}")
    if mode is StoreMode.OWNER and os.geteuid():
        raise OptionError(f"{MODE}=owner: cells can run as their owners only where root starts the cluster", hint=_HINT)
    path = environment.get(USERS, "")
    table = _table(path)
    limits = {
        user: _limits(f"{path}: {user}", named.pop("limits")) for user, named in table.items() if _has_limits(named)
    }
    if limits and mode is not StoreMode.OWNER:
        raise OptionError(
            f"{path}: limits are for cells that run as their owners", hint=f"set {MODE}=owner, or take them out"
        )
    users = {user: _account(path, user, named) for user, named in table.items() if named != {} or user not in limits}
    return {"store_mode": mode, "store_group": group, "unix_users": users, "user_limits": limits}


def _table(path: str) -> dict[str, Any]:
    if not path:
        return {}
    document = YamlDocument(read_text(Path(path), USERS, _HINT), f"{USERS}: {path}", _HINT).written
    if not isinstance(document, dict):
        raise OptionError(f"{USERS}: {path} is no table of users", hint="one line each, as in `ann: anna`")
    return {str(user): named for user, named in document.items()}


def _account(path: str, user: str, named: Any) -> str | UnixUser:
    if isinstance(named, dict) and named.keys() == {"account"}:
        named = named["account"]
    if isinstance(named, dict):
        try:
            return msgspec.convert({"name": user, **named}, UnixUser)
        except msgspec.ValidationError as error:
            raise OptionError(f"{path}: {user}: {error}", hint="uid: and gid: are needed, home: is useful") from error
    if isinstance(named, str | int) and not isinstance(named, bool) and str(named):
        return str(named)
    raise OptionError(f"{path}: {user}: {named!r} is no account", hint="write the account's name or number")


def _has_limits(named: Any) -> bool:
    return isinstance(named, dict) and "limits" in named


def _limits(where: str, named: Any) -> Limits:
    if not isinstance(named, dict):
        raise OptionError(f"{where}: {named!r} are no limits", hint="write them as in `limits: {nproc: 4096, core: 0}`")
    return {str(name): _limit(f"{where}: {name}", str(name), value) for name, value in named.items()}


def _limit(where: str, name: str, value: Any) -> tuple[int, int]:
    """Soft and hard limit: one value is both."""
    if name not in _SIZES + _COUNTS + _TIMES:
        known = ", ".join(sorted(_SIZES + _COUNTS + _TIMES))
        raise OptionError(f"{where}: no such limit", hint=f"there are {known}")
    both = value if isinstance(value, list) else [value, value]
    if len(both) != 2:
        raise OptionError(f"{where}: {value} is no limit", hint="write one value, or [soft, hard]")
    soft, hard = (_number(where, name, one) for one in both)
    if hard != _UNLIMITED and not 0 <= soft <= hard:
        raise OptionError(f"{where}: the soft limit is above the hard one", hint="write [soft, hard]")
    return soft, hard


def _number(where: str, name: str, value: Any) -> int:
    if value == "unlimited":
        return _UNLIMITED
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and name in _SIZES:
        return parse_bytes(value, option=where)
    if isinstance(value, str) and name in _TIMES:
        return math.ceil(parse_seconds(value, option=where))
    raise OptionError(f"{where}: {value!r} is no number", hint="write a number from 0 on, or unlimited")
