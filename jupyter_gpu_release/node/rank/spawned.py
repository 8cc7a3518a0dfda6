"""Processes that the cell spawns (multiprocessing's ``spawn`` and ``forkserver``) find the names of its ``__main__``.

Such a process of a script runs the script's file again; a cell has no file, so it asks the rank for what it misses.
Without an answer a ``Pool`` would start workers for ever, since each dies over its first task.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Collection
from multiprocessing import AuthenticationError, current_process, process, spawn
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from time import sleep
from typing import Any

from ...analysis.cell_facts import is_machinery
from ...errors import CannotSendError, GpuReleaseError
from ...host.unix_socket_calls import peer_user
from ...serialization import codec, rebuild
from ...serialization.diagnosis import find_trouble
from ...unpickling import Trust

#: after a question that could not be taken
_PAUSE_S = 0.1
_prepare = spawn.get_preparation_data


def serve_names(realm: Callable[[], rebuild.NamespaceInfo]) -> None:
    """Let processes that this one spawns from now on find the names of ``realm``; once in a process."""
    # what "" in `sys.path` becomes there; it was the fork server's folder
    with contextlib.suppress(FileNotFoundError):  # deleted
        process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    current_process().authkey = secrets.token_bytes(32)  # all that the fork server forks would share its own
    spawn.get_preparation_data = _NameServer(realm).preparation_data


class _NameServer:
    """Answers what spawned processes ask; listens from the first of them on."""

    def __init__(self, realm: Callable[[], rebuild.NamespaceInfo]) -> None:
        self._realm = realm
        self._address = ""

    def preparation_data(self, name: str) -> dict[str, Any]:
        """Stands in for multiprocessing's function of this name: besides, where to ask for names."""
        if not self._address:  # abstract: the system takes it back, whatever dies
            self._address = f"\0jgr-names-{secrets.token_hex(8)}"
            listener = Listener(self._address, "AF_UNIX", backlog=64)
            threading.Thread(target=self._answer_forever, args=(listener,), name="jgr-names", daemon=True).start()
        return {**_prepare(name), "names": _NamesAt(self._address)}

    def _answer_forever(self, listener: Listener) -> None:
        while True:
            try:
                with listener.accept() as line:
                    _refuse_strangers(line)
                    name, there = line.recv()
                    line.send(_answer(name, there, self._realm()))
            except (EOFError, ConnectionError, AuthenticationError):  # a process that ended while it asked
                continue
            except Exception:  # noqa: BLE001 - without this thread a Pool would start workers for ever
                sleep(_PAUSE_S)  # too many files are open, say


def _refuse_strangers(line: Connection) -> None:
    """Raise :class:`AuthenticationError` before anything is read of another user, who may be silent for ever."""
    with socket.socket(fileno=os.dup(line.fileno())) as looked_at:
        if peer_user(looked_at) != os.geteuid():
            raise AuthenticationError("another user")
    deliver_challenge(line, current_process().authkey)
    answer_challenge(line, current_process().authkey)


class _NamesAt:
    """Becomes, as the new process reads what it is prepared with, its way to ask."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return ask_for_names, (self._address,)


def _answer(name: str, there: Collection[str], realm: rebuild.NamespaceInfo) -> tuple[str, Any]:
    """``name`` and what it reads, but for names that are ``there``: ("graph", …), ("refused", why) or ("none", …)."""
    names = realm.namespace
    if name not in names or is_machinery(name, names):
        return "none", None

    def follow(read: str) -> dict[str, Any]:
        return {} if read in there or read not in names or is_machinery(read, names) else {read: names[read]}

    try:
        dump = codec.dump({name: names[name]}, realm, follow=follow)
        if dump.failed:
            troubles = (find_trouble(lacking, names[lacking], realm, why) for lacking, why in dump.failed.items())
            return "refused", "; ".join(map(str, troubles))
        return "graph", (dump.stream, [bytes(buffer) for buffer in dump.buffers], realm.has_gpu)
    except Exception as error:  # noqa: BLE001 - reducers are foreign code, and somebody waits for an answer
        return "refused", f"{type(error).__name__}: {error}"


# --------------------------------------------------------------------------------- in the new process
def ask_for_names(address: str) -> None:
    """Ask at ``address`` for each name that this process's ``__main__`` is asked for and has not."""
    main = sys.modules["__main__"]
    names = vars(main)

    def find(name: str) -> Any:
        lacking = AttributeError(f"module '__main__' has no attribute {name!r}")
        if name.startswith("__"):
            raise lacking
        try:
            with Client(address, "AF_UNIX", authkey=current_process().authkey) as line:
                line.send((name, list(names)))
                kind, answer = line.recv()
        except (OSError, EOFError):  # the cell has ended
            raise lacking from None
        if kind == "none":
            raise lacking
        if kind == "graph":
            try:
                _take(names, *answer)
                return names[name]
            except (GpuReleaseError, ImportError) as error:
                answer = str(error)
        return _refusing(name, answer)

    names["__getattr__"] = find


def _take(names: dict[str, Any], stream: bytes, buffers: list[bytes], has_gpu: bool) -> None:
    realm = rebuild.NamespaceInfo(names, at_home=False, has_gpu=has_gpu)
    loaded = codec.load(stream, buffers, realm, trust=Trust.RANK)
    modules = {name: importlib.import_module(module) for name, module in loaded.modules.items()}
    for name, value in (modules | loaded.values).items():
        names.setdefault(name, value)  # what this process has bound meanwhile is its own


def _refusing(name: str, why: str) -> Callable[..., None]:
    """Fails in the task's call: a process that fails before leaves a ``Pool`` waiting for ever."""

    def refused(*_arguments: Any, **_keywords: Any) -> None:
        hint = "make it inside the function, or start the processes by fork"
        raise CannotSendError(f"`{name}` cannot be sent to a spawned process: {why}", hint=hint)

    return refused
