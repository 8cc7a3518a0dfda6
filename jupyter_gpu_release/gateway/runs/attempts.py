"""Attempts of a run: whether another one follows, and what is kept of those that are over. Pure functions."""

from __future__ import annotations

import msgspec

from ...errors import ClusterError, RunCancelledError, RunLostError, StoreError
from ...presentation.wording import reason_words
from ...protocol.runs import Attempt, Outcome, Reason, ResourceAsk, RunRequest, RunView, Save
from ...scheduling.resource_requests import ranks_on
from ...settings.built_in import BUILT_IN
from ..cluster.lease import Lease
from .outcomes import error_info

#: a restartable run that is lost so often without a new save may be the reason
MOST_LOST: int = BUILT_IN["most_lost"].default
#: errors of a start that came to nothing
_UNSTARTED = (ClusterError.code, StoreError.code, RunLostError.code)
#: names of ends for which no node is to blame: who has not joined a gang (``node/agent/gang_run.py``) may be well
#: and only slow; a cell that gets no inputs (``node/supervisor/limits.py``) waits for the store, as it would anywhere
_NO_NODES_FAULT = frozenset({"GangIncomplete", "CellNotBegun"})
#: a run is not begun again for less than this
_LEAST_LEFT_S = 1.0


def goes_on(request: RunRequest, view: RunView, outcome: Outcome, cancelled: str | Reason) -> bool:
    """Tell if another attempt follows one that ended so. ``cancelled``: why somebody wants the run ended."""
    if cancelled:
        return False
    if outcome.status == "preempted":
        return True
    is_lost = _is_lost(outcome) or (request.is_driver and outcome.status == "died")  # of a sweep: that is our own code
    return is_lost and lost_in_a_row(view) < max(request.retries, MOST_LOST * bool(request.restartable))


def _is_lost(outcome: Outcome) -> bool:
    """The infrastructure has failed, not the code."""
    if outcome.status == "lost":
        return True
    error = outcome.error
    return outcome.started_s is None and error is not None and error.code in _UNSTARTED


def lost_in_a_row(view: RunView) -> int:
    """How many attempts were lost since the run was last preempted or saved."""
    count = 0
    for attempt in reversed(view.attempts):
        if attempt.status == "preempted" or attempt.was_saved:
            break
        count += 1
    return count


def save_of(outcome: Outcome) -> Save | None:
    """The save of an attempt that was preempted: its values are those that would have come home."""
    if outcome.save is None:
        return None
    return msgspec.structs.replace(
        outcome.save, values=outcome.values, results=outcome.results, notes=list(outcome.notes)
    )


def ended_attempt(view: RunView, outcome: Outcome, gone_at: float, save: Save | None) -> Attempt:
    """An attempt that is over; ``save``: what the run goes on from."""
    notice, error = view.notice, outcome.error
    own = save is not None and save.attempt == view.attempt
    began_s = view.running_at or outcome.started_s
    ended_s = outcome.ended_s or gone_at
    lost_from_s = save.at_s if save is not None and own else began_s
    reason = notice.reason if outcome.status == "preempted" and notice is not None else ""
    return Attempt(
        granted_at=view.granted_at or gone_at,
        gone_at=gone_at,
        running_at=began_s,
        hosts=view.hosts,
        gpu_name=view.gpu_name,
        status=outcome.status,
        reason=reason or (error.evalue if error is not None else ""),
        user=notice.user if notice is not None else "",
        noticed_at=notice.at if notice is not None else None,
        place=save.place if save is not None else "",
        was_saved=own,
        lost_s=0.0 if outcome.save is not None or lost_from_s is None else max(0.0, ended_s - lost_from_s),
    )


def ended_by_cancel(outcome: Outcome, cancelled: str | Reason) -> Outcome:
    """The outcome of an attempt that was preempted, and whose run was cancelled since: what was saved comes home."""
    if outcome.status != "preempted":
        return outcome
    error = outcome.error or error_info(RunCancelledError(reason_words(cancelled) or "it was preempted and then ended"))
    return msgspec.structs.replace(outcome, status="interrupted", error=error, save=None)


def brought_home(outcome: Outcome, save: Save | None) -> Outcome:
    """The outcome of a run that goes on no more: it brings its last save home where it has nothing newer."""
    if save is None or outcome.status in ("ok", "preempted") or outcome.values is not None:
        return outcome
    note = f"the names are as they were saved{f' before {save.place}' if save.place else ''}"
    return msgspec.structs.replace(
        outcome, values=save.values, results=save.results, notes=[*outcome.notes, *save.notes, note]
    )


def ran_s(view: RunView) -> float:
    """Seconds for which the cell ran in earlier attempts: they count for ``--timeout``."""
    return sum(max(0.0, past.gone_at - (past.running_at or past.gone_at)) for past in view.attempts)


def time_left_s(request: RunRequest, view: RunView) -> float | None:
    """The rest of ``--timeout``; None: there is no limit."""
    if request.timeout_s is None:
        return None
    return max(_LEAST_LEFT_S, request.timeout_s - ran_s(view))


def blamed_hosts(view: RunView) -> frozenset[str]:
    """Hosts on which attempts were lost: others are tried first."""
    return frozenset(host for past in view.attempts if past.status != "preempted" for host in past.hosts)


def failed_host(hosts: list[str], ask: ResourceAsk, lease: Lease | None, outcome: Outcome) -> str:
    """The host of the rank that failed, among those of the lease; empty where that was no node's fault."""
    if not hosts or (outcome.error is not None and outcome.error.ename in _NO_NODES_FAULT):
        return ""
    left = outcome.failed_rank
    for host, slot in zip(hosts, lease.slots if lease is not None else (), strict=False):
        left -= ranks_on(ask, slot)
        if left < 0:
            return host
    return hosts[0]  # parameter servers and the evaluator are where the leader is
