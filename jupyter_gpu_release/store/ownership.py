"""Rules for what this process may load from a store: by who owns a file, and by what a gateway has said of results.

Loading runs code, so files are this user's own or those of users that are trusted. In a store that a group shares any
member can write values and the manifest that speaks of them: there the digests count of which a gateway has told this
process, of its own runs and of what it has loaded.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import OptionError, StoreError
from ..protocol.cell import Graph

#: account (name or number) that the cluster's agents run as, where that is not this user's
VARIABLE = "JUPYTER_GPU_SERVICE_USER"
#: of the process, not an argument: it holds for all that is loaded, also by code that only knows a path
_trusted: set[int] = set()
#: before the digest of values that came in a message: what their file will be was not known yet
_INLINE = "inline:"
#: so many a cell is told of
_NEWEST = 100
#: run → digest. Of the process, not an argument: `load` is called by users' code, which knows a run's id only
_told: dict[str, str] = {}


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


# ------------------------------------------------------------------ results of which a gateway has told
def note_results(run: str, graph: Graph) -> None:
    """Remember what a gateway has said of a run's results."""
    _told.pop(run, None)  # the newest last
    _told[run] = graph.digest if graph.file else _INLINE + _content_digest(graph.stream, graph.buffers)


def learn_results(told: Mapping[str, str]) -> None:
    """Take over what the process knows that has sent this one's cell."""
    _told.update(told)


def results_for_cell() -> dict[str, str]:
    """Digests of other runs' results for a cell: none where the store is one user's."""
    return dict(islice(reversed(_told.items()), _NEWEST)) if trusts_others() else {}


def file_digest(run: str, says_manifest: str) -> str:
    """The digest that the run's graph file must have; ``says_manifest`` where nothing else is known."""
    told = _told.get(run, _INLINE)
    return says_manifest if told.startswith(_INLINE) else told


def is_told(run: str) -> bool:
    """Tell if a gateway has said what this run's results are."""
    return run in _told


def is_what_was_told(run: str, stream: bytes, buffers: Sequence[Any]) -> bool:
    """Tell if these are the results of which a gateway has told (True where none has)."""
    told = _told.get(run, "")
    return not told.startswith(_INLINE) or told == _INLINE + _content_digest(stream, buffers)


def _content_digest(stream: bytes, buffers: Sequence[Any]) -> str:
    summed = hashlib.blake2b(stream, digest_size=16)
    for buffer in buffers:
        summed.update(len(buffer).to_bytes(8))
        summed.update(buffer)
    return summed.hexdigest()
