"""Large inputs on their way to the store: how far they are stands below the cell, and an interrupt ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from ...client.tracebacks import make_interrupt
from ...presentation.status_line import StatusLine
from ...store.files import Pace
from ...submission.request import Submission
from ...units import format_bytes, format_seconds
from ..interrupts import Interrupts
from ..output.cell_output import CellOutput

#: what takes no longer is not worth a line
_QUIET_S, _TICK_S = 0.5, 0.25
#: for the rest of a piece to be written, and what was written to be removed
_END_S = 1.0


class _GivenUpError(Exception):
    """Nobody wants the inputs any more."""


class _Sent(Pace):
    """Counts the bytes that were written."""

    is_given_up = False

    def wrote(self, count: int) -> None:
        """Account for a piece; raises when nobody waits for the next one."""
        super().wrote(count)
        if self.is_given_up:
            raise _GivenUpError


def send_inputs(
    send: Callable[[Pace], Submission], total_bytes: int, output: CellOutput, interrupts: Interrupts
) -> Submission:
    """Have ``send`` write ``total_bytes``; raises what it raises, and the interrupt.

    It has a thread of its own: a store that hangs must not hold an interrupt up.
    """
    sent, done = _Sent(), Future[Submission]()
    threading.Thread(target=_send, args=(send, sent, done), name="jgr-sending", daemon=True).start()
    began, line = time.monotonic(), StatusLine(output)
    while not _is_over(done, _TICK_S):
        if interrupts.count:
            sent.is_given_up = True
            _is_over(done, _END_S)
            text = "interrupted while the inputs were being sent: nothing runs"
            line.end(text)
            raise make_interrupt(text)
        if time.monotonic() - began >= _QUIET_S:
            line.show_text(_words(sent.written, total_bytes))
        output.keep_busy()
    line.end(f"sent {format_bytes(total_bytes)} of inputs in {format_seconds(time.monotonic() - began)}")
    return done.result()


def _send(send: Callable[[Pace], Submission], sent: _Sent, done: Future[Submission]) -> None:
    try:
        submission = send(sent)
        if sent.is_given_up:
            submission.withdraw()
        done.set_result(submission)
    except BaseException as error:  # noqa: BLE001 - for who waits
        done.set_exception(error)


def _is_over(done: Future[Submission], limit_s: float) -> bool:
    try:
        done.exception(limit_s)
    except TimeoutError:
        return False
    return True


def _words(written: int, total: int) -> str:
    """Words for the line; the whole need not be reached, as nothing is written that is on the store already."""
    share = min(100, 100 * written // max(1, total))
    return f"sending the inputs to the store · {format_bytes(written)} of {format_bytes(total)} written ({share} %)"
