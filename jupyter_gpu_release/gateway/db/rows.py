"""Records that the ledger gives and takes: runs, leases, sessions, tokens."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ...protocol.runs import Outcome, ResourceAsk, RunRequest, RunView


@dataclass(frozen=True)
class StoredRun:
    """A run as the ledger knows it. ``request`` is None for terminal runs."""

    view: RunView
    ordinal: int
    outcome: Outcome | None
    request: RunRequest | None


@dataclass(frozen=True)
class StoredLease:
    """A placement group, the run that holds it, and its encoded placement."""

    lease: str
    run: str
    placement: bytes


@dataclass(frozen=True)
class StoredSession:
    """A client's session: ``live``, ``grace``, ``lost`` or ``ended``, since a time."""

    session: str
    user: str
    state: str
    since: float


@dataclass(frozen=True)
class StoredToken:
    """A bearer token's facts; the token itself is nowhere stored."""

    digest: str
    label: str
    user: str
    role: str
    expires_at: float | None
    created_at: float


class WarmLeaseRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why a lease without a run is held: a kernel (its session) keeps it warm. Times are unix seconds."""

    user: str
    session: str
    since_s: float
    until_s: float
    auto: bool = False
    #: what it was granted for
    ask: ResourceAsk = ResourceAsk()
    notebook: str = ""
    cell: str = ""
    queue: str = "default"
    kernel: str = ""


@dataclass(frozen=True)
class WarmSpan:
    """GPUs that were kept warm from ``since`` to ``until`` (None: they still are). Unix seconds."""

    user: str
    gpus: float
    since: float
    until: float | None
