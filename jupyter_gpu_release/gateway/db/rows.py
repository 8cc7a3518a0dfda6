"""Records that the ledger gives and takes: runs, leases, sessions, tokens, what lists show of a run."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ...protocol.runs import FileInfo, Outcome, ResourceAsk, RunRequest, RunView, ValueInfo


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
    gpus: int
    since: float
    until: float | None


class ErrorSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of :class:`.ErrorInfo` that lists show."""

    ename: str
    evalue: str
    code: str = ""
    hint: str = msgspec.field(default="", name="mend")


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of :class:`.Outcome` that lists show; decodes an outcome as well."""

    error: ErrorSummary | None = None
    results: list[ValueInfo] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    files: list[FileInfo] = msgspec.field(default_factory=list)


def summary_of(outcome: Outcome) -> Summary:
    """The summary of ``outcome`` that lists show."""
    error = outcome.error
    shown = None if error is None else ErrorSummary(error.ename, error.evalue, error.code, error.hint)
    return Summary(shown, outcome.results, outcome.notes, outcome.files)
