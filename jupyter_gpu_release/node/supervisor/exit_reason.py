"""Reasons why a rank died without a word of its own, in words for the notebook. Pure."""

from __future__ import annotations

import os
import signal

from ...protocol.runs import Outcome
from ..ipc.frames import died_outcome

#: exit code of a rank that cannot be heard any more
UNHEARD = 74
_CLOSED = "closed the files by which it speaks to its node (os.closerange?)"

_CAUSES: dict[int, str] = {
    signal.SIGKILL: "was killed (SIGKILL), by the system's out-of-memory killer or from outside",
    signal.SIGSEGV: "crashed (SIGSEGV, a segmentation fault in native code)",
    signal.SIGABRT: "aborted (SIGABRT, raised in native code)",
}


def explain_exit(wait_status: int, asked: str, grace_s: float, reason: str = "") -> Outcome:
    """Outcome for a rank with this ``waitpid`` status; ``asked`` is why *we* ended it (empty: we did not).

    ``reason``: in words, why it was killed, where it had no chance to react to an interrupt.
    """
    number = os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else 0
    if asked == "unheard" and number == signal.SIGKILL:
        return died_outcome("died", "CellProcessDied", f"the cell's process {_CLOSED}; its names are gone")
    if asked == "hung" and number == signal.SIGKILL:
        return died_outcome(asked, "RankHangs", reason)
    if asked and number == signal.SIGKILL:
        reasons = {
            "timeout": "the cell did not react to the interrupt at its --timeout and was killed",
            "lost": "the node's agent ended, and the cell with it",
        }
        if reason and asked not in reasons:
            return died_outcome(asked, "KeyboardInterrupt", f"the cell was {reason}; it left no names")
        default = f"the cell did not react to the interrupt within {grace_s:g} s and was killed"
        return died_outcome(asked, "KeyboardInterrupt", f"{reasons.get(asked, default)}; its names are gone")
    if number:
        cause = _CAUSES.get(number, f"was ended by {_name_of(number)}")
        return died_outcome("died", "CellProcessDied", f"the cell's process {cause}; its names are gone")
    code = os.WEXITSTATUS(wait_status)
    cause = _CLOSED if code == UNHEARD else f"ended by itself with exit code {code} (os._exit?)"
    return died_outcome("died", "CellProcessDied", f"the cell's process {cause}; its names are gone")


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"
