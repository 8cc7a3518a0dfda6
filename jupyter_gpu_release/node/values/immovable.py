"""Reasons why a cell cannot go on elsewhere, in the words of its user."""

from __future__ import annotations

import io
import itertools
import re
import subprocess
import sys
import threading
from concurrent.futures import Executor
from typing import Any

from ...adapters.registry import adapters_of
from ...serialization.diagnosis import UnpicklablePart

_KINDS: tuple[tuple[type, str], ...] = (
    (threading.Thread, "a thread"),
    (subprocess.Popen, "a process"),
    (Executor, "a pool of workers"),
)
#: types in the words of pickle
_NAMES = {
    "socket": "an open socket",
    "_thread.lock": "a lock",
    "_thread.RLock": "a lock",
    "_multiprocessing.SemLock": "a lock",
    "generator": "a generator",
    "coroutine": "a coroutine",
    "sqlite3.Connection": "an open database",
    "sqlite3.Cursor": "a cursor of an open database",
    "SSLContext": "a TLS connection",
}
#: looked at in a collection
_MOST = 1000
_PICKLES_WORDS = re.compile(r"cannot pickle (?:'([\w.]+)' object|(an open file .*))")


def has_graph(value: Any) -> bool:
    """Tell if this is a result that remembers its computation, or a collection that holds one."""
    if isinstance(value, list | tuple | dict):
        return any(
            has_graph(each) for each in itertools.islice(value.values() if isinstance(value, dict) else value, _MOST)
        )
    return any(adapter.remembers_computation(value) for adapter in adapters_of(type(value)))


def begun_file(name: str, value: Any, *, is_read: bool) -> str:
    """The reason why ``value``, which ``with`` would open again, is not what it is then; empty: it is, or no file.

    ``is_read``: the code that follows reads it where it stands.
    """
    database = getattr(sys.modules.get("sqlite3"), "Connection", ())
    if isinstance(value, database):
        return f"`{name}` is an open database, and `with` takes back what was not committed: open it in each round"
    mode = getattr(value, "mode", "")
    is_file = isinstance(value, io.IOBase)
    if (is_file and value.closed) or (isinstance(mode, str) and "a" in mode):
        return ""
    if (is_file and value.writable()) or (isinstance(mode, str) and mode[:1] in ("w", "x")):
        return f'`{name}` is open for writing, and `with` would begin it anew: open it with "a", or in each round'
    if is_file and is_read:
        return f"`{name}` is being read, and `with` would begin it anew: read it before the loop"
    return ""


def in_words(name: str, value: Any, trouble: UnpicklablePart) -> str:
    """``trouble``, which keeps ``name`` with its ``value`` where it is, as its user would say it."""
    for kind, words in _KINDS:
        if isinstance(value, kind):
            return f"`{name}` is {words}"
    found = _PICKLES_WORDS.fullmatch(trouble.reason)
    what = "" if found is None else found[2] or _NAMES.get(found[1], "")
    return f"`{trouble.path}` is {what}" if what else str(trouble)
