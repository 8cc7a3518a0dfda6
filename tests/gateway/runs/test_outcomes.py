"""What lists and commands say of how a run ended."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.gateway.runs.outcomes import final_reason
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome


@pytest.mark.parametrize(
    ("status", "error", "cancelled", "words"),
    [
        ("ok", None, "", ""),
        ("died", None, "", "died"),
        ("error", ErrorInfo("ValueError", "no\nmore"), "", "ValueError: no"),
        ("error", ErrorInfo("ValueError", " "), "", "ValueError"),
        ("memory", ErrorInfo("RunFailedError", "took 3 GiB", code="run_failed"), "", "took 3 GiB"),
        ("interrupted", ErrorInfo("KeyboardInterrupt", ""), "the kernel ended", "the kernel ended"),
        ("interrupted", ErrorInfo("KeyboardInterrupt", ""), "", "KeyboardInterrupt"),
        ("timeout", ErrorInfo("KeyboardInterrupt", ""), "", "stopped at its --timeout"),
        ("timeout", ErrorInfo("OSError", "full"), "", "stopped at its --timeout (OSError: full)"),
        ("timeout", ErrorInfo("RunFailedError", "no GPU within 3 s", code="run_failed"), "", "no GPU within 3 s"),
    ],
)
def test_the_reason_of_the_end(status: str, error: ErrorInfo | None, cancelled: str, words: str) -> None:
    assert final_reason(Outcome(status, error), cancelled) == words
