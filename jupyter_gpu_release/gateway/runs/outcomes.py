"""The ends of runs, in words and states: pure functions."""

from __future__ import annotations

import msgspec

from ...errors import GpuReleaseError, RunCancelledError, RunFailedError, RunLostError
from ...protocol.runs import ErrorInfo, Outcome, Reason
from ...protocol.states import RunState
from ...units import format_bytes

_STATE_OF_STATUS = {
    "ok": RunState.SUCCEEDED,
    "error": RunState.FAILED,
    "interrupted": RunState.CANCELLED,
    "timeout": RunState.FAILED,
    "died": RunState.FAILED,
    "memory": RunState.FAILED,
    "hung": RunState.FAILED,
    "lost": RunState.LOST,
}


def final_state(outcome: Outcome, cancelled: str | Reason) -> RunState:
    """The terminal state for an outcome; a process that died because it was cancelled is cancelled."""
    if cancelled and outcome.status == "died":
        return RunState.CANCELLED
    return _STATE_OF_STATUS.get(outcome.status, RunState.FAILED)


def final_reason(outcome: Outcome, cancelled: str | Reason) -> str | Reason:
    """One line on how the run ended; empty for success."""
    if outcome.status == "ok":
        return ""
    if cancelled and outcome.status in ("interrupted", "died"):
        return cancelled
    error = outcome.error
    if error is None:
        return outcome.status
    first = error.evalue.strip().splitlines()[0] if error.evalue.strip() else ""
    text = first if error.code else f"{error.ename}: {first}" if first else error.ename
    if outcome.status == "timeout" and not error.code:  # what the cell got is our interrupt, and says nothing
        text = "stopped at its --timeout" + (f" ({text})" if error.ename != "KeyboardInterrupt" else "")
    return text[:300]


def gone_facts(outcome: Outcome, at_s: float) -> dict[str, float | None]:
    """The time when a run's GPUs were free or another run's, and the milliseconds from its last statement to that."""
    release_ms = None if outcome.ended_s is None else max(0.0, (at_s - outcome.ended_s) * 1000)
    return {"gone_at": at_s, "release_ms": release_ms}


def unstarted(error: GpuReleaseError) -> Outcome:
    """The outcome of a run that ended before its cell began, by ``error``."""
    status = {RunCancelledError: "interrupted", RunFailedError: "timeout", RunLostError: "lost"}.get(
        type(error), "error"
    )
    return Outcome(status=status, error=error_info(error))


def lost(reason: str) -> Outcome:
    """The outcome of a run whose process, node or cluster died."""
    return unstarted(RunLostError(reason, hint="run the cell again"))


def is_lost(outcome: Outcome | None) -> bool:
    """Tell of an outcome if it is the end of something other than the cell: its process, node or cluster."""
    return outcome is not None and outcome.error is not None and outcome.error.code == RunLostError.code


def lost_results(run: str, outcome: Outcome, reason: str) -> Outcome:
    """The outcome of a run that had ended, but whose results were not durable yet; names what is lost."""
    text = f"results of run {run} ({_named(outcome)}) are lost: {reason}"
    if outcome.values is not None and outcome.values.file:
        outcome = msgspec.structs.replace(outcome, values=None, results=[], save=None)
    if outcome.error is not None:
        return msgspec.structs.replace(outcome, notes=[*outcome.notes, text])
    return msgspec.structs.replace(outcome, status="lost", error=lost(text).error)


def given_up(outcome: Outcome, reason: Reason) -> Reason:
    """The reason why a persisting run ended, when somebody gave its results up."""
    return Reason(reason.code, reason.facts | {"results": _named(outcome)})


def _named(outcome: Outcome) -> str:
    names = ", ".join(value.name for value in outcome.results) or "no names"
    return f"{names}; {format_bytes(sum(value.bytes for value in outcome.results))}"


def error_info(error: GpuReleaseError) -> ErrorInfo:
    """One of our own errors for an outcome."""
    return ErrorInfo(ename=type(error).__name__, evalue=error.message, code=error.code, hint=error.hint)


def merged(released: Outcome | None, final: Outcome | None) -> Outcome:
    """The complete outcome: the final one, with inline values of the released one where it has none."""
    if final is None:
        return released or Outcome(status="ok")
    if released is not None and final.values is None and released.values is not None and not released.values.file:
        return msgspec.structs.replace(final, values=released.values)
    return final
