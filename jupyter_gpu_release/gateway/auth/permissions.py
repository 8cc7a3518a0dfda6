"""Permissions, who may do and see what: the one place that decides it, for every route and message of a session.

Pure: callers and records in, decisions and shorter records out. What a field of a record is worth to others is said
here by naming the fields that everybody sees; a field that somebody adds later is the owner's until it is named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import msgspec

from ...presentation.wording import reason_for
from ...protocol.rest import RunRow, StatusDocument, UsageFacts, WarmRow
from ...protocol.runs import RunView
from ...protocol.states import RunState

ADMIN, USER, ASSISTANT = "admin", "user", "assistant"
ROLES = (USER, ADMIN, ASSISTANT)
#: of the driver of a sweep; nobody can ask for such a token
SWEEP = "sweep"
#: what an assistant's token may send to the gateway beside what it reads
_ASSISTANTS = frozenset(
    {
        "/v1/runs",
        "/v1/runs/{run}/cancel",
        "/v1/outlook",
        "/v1/packages/check",
        "/v1/packages/resolve",
        "/v1/packages/wheels/{digest}",
    }
)
#: what everybody sees of everybody's runs: who, how many GPUs, since when, in which state and queue, on which GPUs
PUBLIC_RUN = frozenset(
    {
        "run",
        "user",
        "state",
        "gpus",
        "ranks",
        "queue",
        "priority",
        "priority_value",
        "simulated",
        "submitted_at",
        "granted_at",
        "running_at",
        "gone_at",
        "finished_at",
        "queued_s",
        "held_s",
        "since_s",
        "position",
        "hosts",
        "gpu_ids",
        "gpu_name",
        "most_gpus",
        "start_estimate_s",
        "start_at_least_s",
        "start_at_most_s",
        "start_after",
    }
)
#: of which everybody sees why
_WAITING = (RunState.SUBMITTED.word, RunState.QUEUED.word)
PUBLIC_WARM = frozenset(
    {"lease", "run", "user", "gpus", "since", "until", "auto", "hosts", "gpu_ids", "queue", "state"}
)


class Act(Enum):
    """An act that somebody wants to do on a run. The value is the audit log's word."""

    #: its facts and its recorded output: ``runs show``, events, attach
    READ = "run.read"
    #: cancel, interrupt, kill, pin …
    CHANGE = "run.change"
    #: let it outlive its kernel, which is the owner's
    DETACH = "run.detach"
    #: give its running cell a value: a pickle, which runs code there
    SUPPLY = "run.supply"
    #: end or extend the warm lease that is kept after it
    LEASE = "lease.change"
    #: the values that it made: pickles, which run code where they are loaded
    LOAD = "run.load"


_OWNERS = frozenset({Act.LOAD, Act.DETACH, Act.SUPPLY})
_LOOKS = frozenset({Act.READ, Act.LOAD})


@dataclass(frozen=True)
class Caller:
    """An authenticated user. ``token`` is the token's public id, ``origin`` the address that the request came from.

    ``sweep``: it is a run of this user, which may send, follow and end the trials of its sweep, and nothing else.
    """

    user: str
    role: str = USER
    token: str = ""
    origin: str = field(default="", compare=False)
    expires_at: float | None = None
    sweep: str = ""

    @property
    def is_admin(self) -> bool:
        """Tell if the gateway's admin routes and everybody's runs are open to this caller."""
        return self.role == ADMIN

    @property
    def is_assistant(self) -> bool:
        """Tell if the token is for an assistant of its user, who may do more."""
        return self.role == ASSISTANT

    def may_ask(self, method: str, path: str) -> bool:
        """Tell if a route is open to this caller (those of admins are told apart before)."""
        if self.role == SWEEP:
            return method == "WS"
        return not self.is_assistant or method in ("GET", "WS") or path in _ASSISTANTS


def may(caller: Caller, owner: str, act: Act, origin: str = "") -> bool:
    """Tell if ``caller`` may do ``act`` with a run of ``owner``; ``origin``: the run's.

    Owners may do everything. Admins may read and end everybody's runs, but not load their values: those are pickles
    made by somebody else's code, and an admin's notebook is the last place where that should run. Assistants look at
    all runs of their user, and change those of assistants.
    """
    if caller.is_assistant and act not in _LOOKS and origin != ASSISTANT:
        return False
    return caller.user == owner or (caller.is_admin and act not in _OWNERS)


def shown_view(caller: Caller, view: RunView) -> RunView:
    """A run's view as ``caller``, who may read it, sees it: values and errors travel to the owner only."""
    outcome = view.outcome if may(caller, view.user, Act.LOAD) else None
    return msgspec.structs.replace(view, outcome=outcome, reason=reason_for(view, caller.user))


def shown_run(caller: Caller, row: RunRow) -> RunRow:
    """A row of ``runs``: whole for the owner and for admins (it holds names and sizes of results, no values).

    Others learn why a run waits, but not how it ended.
    """
    if may(caller, row.user, Act.READ):
        return row
    shown = _public(row, PUBLIC_RUN)
    return msgspec.structs.replace(shown, reason=row.reason) if row.state in _WAITING else shown


def shown_status(caller: Caller, document: StatusDocument, usage: UsageFacts | None = None) -> StatusDocument:
    """The status as ``caller`` sees it: everybody's runs, of others' only who holds how much and since when.

    ``usage``: the caller's account.
    """
    return msgspec.structs.replace(
        document,
        queue=[shown_run(caller, row) for row in document.queue],
        runs=[shown_run(caller, row) for row in document.runs],
        warm=[row if may(caller, row.user, Act.READ) else _public(row, PUBLIC_WARM) for row in document.warm],
        user=caller.user,
        role=caller.role,
        usage=usage,
    )


Row = TypeVar("Row", RunRow, WarmRow)


def _public(row: Row, public: frozenset[str]) -> Row:
    """The row made of what everybody sees, and of nothing else."""
    return type(row)(**{name: getattr(row, name) for name in public})
