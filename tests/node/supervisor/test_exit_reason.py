"""Words for a rank that died: what a user reads in place of a traceback."""

from __future__ import annotations

import signal

import pytest

from jupyter_gpu_release.node.supervisor.exit_reason import UNHEARD, explain_exit

_KILLED = signal.SIGKILL


def _exited(code: int) -> int:
    return code << 8


@pytest.mark.parametrize(
    ("status", "asked", "reason", "found", "words"),
    [
        (
            _KILLED,
            "",
            "",
            "died",
            "was killed (SIGKILL), by the system's out-of-memory killer or from outside; its names",
        ),
        (signal.SIGSEGV, "", "", "died", "crashed (SIGSEGV, a segmentation fault in native code); its names are gone"),
        (signal.SIGABRT, "interrupt", "", "died", "aborted (SIGABRT, raised in native code)"),
        (signal.SIGTERM, "", "", "died", "was ended by SIGTERM"),
        (_exited(3), "", "", "died", "ended by itself with exit code 3 (os._exit?); its names are gone"),
        (_exited(UNHEARD), "", "", "died", "closed the files by which it speaks to its node"),
        (_KILLED, "unheard", "", "died", "closed the files by which it speaks to its node"),
        (_KILLED, "hung", "rank 1 hangs", "hung", "rank 1 hangs"),
        (
            _KILLED,
            "timeout",
            "",
            "timeout",
            "did not react to the interrupt at its --timeout and was killed; its names",
        ),
        (_KILLED, "lost", "", "lost", "the node's agent ended, and the cell with it; its names are gone"),
        (
            _KILLED,
            "interrupted",
            "",
            "interrupted",
            "did not react to the interrupt within 7 s and was killed; its names",
        ),
        (_KILLED, "interrupted", "killed by bob", "interrupted", "the cell was killed by bob; it left no names"),
        (_KILLED, "timeout", "killed by bob", "timeout", "did not react to the interrupt at its --timeout"),
    ],
)
def test_why_a_cell_has_no_names(status: int, asked: str, reason: str, found: str, words: str) -> None:
    outcome = explain_exit(status, asked, 7.0, reason)
    assert outcome.error is not None
    assert (outcome.status, words in outcome.error.evalue) == (found, True), outcome.error.evalue
