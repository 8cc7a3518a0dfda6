from __future__ import annotations

import pytest

from jupyter_gpu_release.client.tracebacks import failure_of
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, RunView


def ended(outcome: Outcome | None, state: str = "failed", reason: str = "") -> RunView:
    return RunView(run="r", user="u", state=state, outcome=outcome, reason=reason)


def shown(error: BaseException | None) -> str:
    assert error is not None
    return "\n".join(error._render_traceback_())  # type: ignore[attr-defined]


THERE = ErrorInfo("KeyboardInterrupt", "", ["there"])
KILLED = ErrorInfo("KeyboardInterrupt", "was killed; its names are gone", code="failed")
UNSTARTED = ErrorInfo("RunCancelledError", "interrupted", code="cancelled")


@pytest.mark.parametrize(
    ("outcome", "interrupts", "kind"),
    [
        (Outcome("ok"), 0, "NoneType"),
        (Outcome("ok"), 1, "NoneType"),  # the cell caught it
        (Outcome("ok"), 2, "KeyboardInterrupt"),
        (Outcome("error", error=ErrorInfo("ValueError", "x")), 0, "ValueError"),
        (Outcome("error", error=ErrorInfo("ValueError", "x")), 1, "ValueError"),
        (Outcome("interrupted", error=THERE), 1, "KeyboardInterrupt"),
        (Outcome("interrupted", error=THERE), 0, "RunCancelledError"),
        (Outcome("interrupted", error=KILLED), 2, "KeyboardInterrupt"),
        (Outcome("interrupted", error=UNSTARTED), 1, "KeyboardInterrupt"),
        (Outcome("interrupted", error=UNSTARTED), 0, "RunCancelledError"),
        (Outcome("timeout", error=THERE, started_s=0, ended_s=9), 0, "RunFailedError"),
        (Outcome("timeout", error=ErrorInfo("RunFailedError", "waited", code="failed")), 0, "RunFailedError"),
        (Outcome("died", error=ErrorInfo("CellProcessDied", "segfault", code="failed")), 0, "RunFailedError"),
        (Outcome("lost", error=ErrorInfo("RunLostError", "node died", code="lost")), 0, "RunLostError"),
        (Outcome("lost"), 0, "RunFailedError"),
        (None, 1, "KeyboardInterrupt"),
    ],
)
def test_which_exception_the_cell_raises(outcome: Outcome | None, interrupts: int, kind: str):
    assert type(failure_of(ended(outcome), interrupts)).__name__ == kind


def test_words_below_the_traceback():
    timeout = Outcome("timeout", error=THERE, started_s=0, ended_s=9)
    assert shown(failure_of(ended(timeout), 0, "the receipt")) == (
        "there\nthe receipt\nstopped after 9 s at its --timeout\n  → give it a longer --timeout, or none"
    )
    assert "was killed; its names are gone" in shown(failure_of(ended(Outcome("interrupted", error=KILLED)), 2))


@pytest.mark.parametrize(
    ("state", "kind"), [("lost", "RunLostError"), ("cancelled", "RunCancelledError"), ("failed", "RunFailedError")]
)
def test_ends_without_an_outcome(state: str, kind: str):
    error = failure_of(ended(None, state, "the node died"), 0)
    assert type(error).__name__ == kind
    assert "the node died" in shown(error)
