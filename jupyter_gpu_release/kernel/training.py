"""The life of one run as the cell sees it: sent, followed, its names bound, its error raised."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core import sources
from ..core.messages import Outcome, RunView, ValueInfo
from ..core.resources import format_seconds
from ..core.waits import sentence
from ..errors import GpuReleaseError, OptionError, RunCancelledError, RunFailedError, RunLostError
from .failures import remote_error, syntax_error, with_traceback_lines, without_traceback
from .follow import Following, is_usable
from .interrupts import Interrupts
from .namespace import Prepared
from .receipt import Receipt, make_receipt
from .results import open_values, store_of
from .reuse import key_of, reuse, with_key
from .submission import Cell, Submission, choice_of, exported, make_submission

if TYPE_CHECKING:
    from ..client.session import GatewaySession
    from .notebook import Notebook


def prepare(notebook: Notebook, cell: Cell) -> Prepared:
    """Check the cell and collect what it needs; nothing is taken yet.

    Raises the cell's own syntax error as IPython shows it, and what cannot be sent, by name.
    """
    if not any(line.strip() and not line.strip().startswith("#") for line in cell.body.splitlines()):
        raise OptionError("there is nothing to run", mend="write the code below the %%gpu_train line")
    exported(cell.options.export)
    try:
        prepared = notebook.names.collect(cell.body, choice_of(cell.options), line_offset=cell.place.line_offset)
    except SyntaxError as error:
        sources.keep(notebook.shell.compile, [cell.source])
        error.filename = cell.source.filename
        raise syntax_error(error, notebook.shell) from None
    if prepared.asks_input:
        sys.stderr.write("this cell calls input(): nobody can answer on the cluster, so that call will fail there\n")
    return prepared


def train(notebook: Notebook, cell: Cell) -> None:
    """Run ``cell`` on the cluster and bind what comes back; raises what the cell raised."""
    prepared = prepare(notebook, cell)
    session = notebook.link.open(notebook.settings)
    key = key_of(notebook, cell, prepared)
    if key is not None and reuse(notebook, session, cell, key):
        return
    with Interrupts() as interrupts:
        submission = with_key(_write_inputs(notebook, cell, prepared, session), key)
        run = _Run(notebook, session, submission, interrupts)
        error = run.carry_out()
    if error is not None:
        raise error


def _write_inputs(notebook: Notebook, cell: Cell, prepared: Prepared, session: GatewaySession) -> Submission:
    compiler = notebook.shell.compile
    known = sources.sources_in(compiler, prepared.stream)
    submission = make_submission(cell, prepared, session.session_id, lambda: store_of(session), known)
    sources.keep(compiler, [cell.source])  # functions that the cell defines come home with its file name
    return submission


class _Run:
    def __init__(
        self, notebook: Notebook, session: GatewaySession, submission: Submission, interrupts: Interrupts
    ) -> None:
        self._notebook = notebook
        self._session = session
        self._submission = submission
        self._interrupts = interrupts
        self._following: Following | None = None

    def carry_out(self) -> BaseException | None:
        """Send, follow, bind; returns the exception that the cell shall raise."""
        if self._interrupts.count:
            self._submission.withdraw()
            return interrupted("interrupted before anything was sent")
        feed = self._session.submit(self._submission.request)
        following = Following(self._notebook.shell, self._session, feed, self._interrupts)
        try:
            view = following.until_usable()
        except GpuReleaseError as error:
            if not following.is_accepted:
                self._submission.withdraw()
            following.close_line(error.message)
            return error
        except BaseException:  # ours or the display's fault: nobody would look after the run any more
            self._session.signal(feed.run, "kill")
            raise
        if not is_usable(view):
            return self._leave(following, view)
        if view.granted_at is None:
            self._submission.withdraw()
        return self._end(following, view)

    def _leave(self, following: Following, view: RunView) -> BaseException:
        """The user does not want to wait for the rest."""
        if view.gone_at is None:
            text = f"interrupted without contact to the gateway; run {view.run} may still go on"
        else:
            waits = f" ({sentence(view.waits_for)})" if view.waits_for is not None and view.waits_for.reason else ""
            text = f"interrupted while the results were being written{waits}; they are kept with run {view.run}"
        following.close_line(text)
        return interrupted(text)

    def _end(self, following: Following, view: RunView) -> BaseException | None:
        notes = list(self._submission.prepared.notes)
        came_back: Sequence[ValueInfo] = ()
        trouble: GpuReleaseError | None = None
        try:
            came_back = self._bind(view, notes)
        except GpuReleaseError as problem:
            trouble = problem
            if failure_of(view, self._interrupts.count) is not None:  # else this is the error that is shown
                notes.append(f"the names are not bound: {problem}")
        receipt = make_receipt(view, came_back=came_back, notes=notes)
        failure = failure_of(view, self._interrupts.count, receipt.text)
        if failure is None and trouble is not None:
            receipt = replace(receipt, sign="✗", parts=("the names are not bound", *receipt.parts))
            failure = without_traceback(trouble, receipt.text)
        self._show(following, receipt, view, failed=failure is not None)
        return failure

    def _show(self, following: Following, receipt: Receipt, view: RunView, *, failed: bool) -> None:
        """The receipt comes last: below the output, or (as part of its text) below the traceback."""
        if view.outcome is not None and view.outcome.error is not None:
            following.relay.show_other_errors(view.outcome.error.ename, view.outcome.error.evalue)
        following.settle(receipt.metadata() if failed else None, failed=failed)
        if failed:
            following.line.step_aside()
        else:
            following.line.finish(receipt.bundle(), receipt.metadata())

    def _bind(self, view: RunView, notes: list[str]) -> Sequence[ValueInfo]:
        """Bind the names that came back and return what they are."""
        outcome = view.outcome
        if outcome is None or outcome.values is None:
            return ()
        stream, buffers = open_values(self._session, view.run, outcome.values)
        names = self._notebook.names
        bound = names.apply(stream, buffers, outcome, self._submission.prepared, run=view.run)
        notes += names.notes
        return bound


def interrupted(text: str = "", lines: Sequence[str] = ()) -> KeyboardInterrupt:
    """The KeyboardInterrupt that ends an interrupted cell, without frames of ours."""
    return with_traceback_lines(KeyboardInterrupt(text), [*lines] or [f"\x1b[31mKeyboardInterrupt\x1b[39m: {text}"])


def failure_of(view: RunView, interrupts: int, below: str = "") -> BaseException | None:
    """The exception for a run that did not go well (None: it did); ``below`` is shown under its traceback."""
    under = [below] if below else []
    outcome = view.outcome
    if outcome is None or (outcome.error is None and outcome.status != "ok"):
        return _failure_without_error(view, interrupts, under)
    if outcome.error is None:
        return interrupted("interrupted") if interrupts > 1 else None
    if outcome.status == "interrupted":
        return _interrupted(view, outcome, interrupts, under)
    if outcome.status == "timeout" and not outcome.error.code:
        ran = format_seconds((outcome.ended_s or 0) - (outcome.started_s or 0))
        error = RunFailedError(f"stopped after {ran} at its --timeout", mend="give it a longer --timeout, or none")
        return with_traceback_lines(error, [*outcome.error.traceback, str(error), *under])
    return remote_error(outcome.error, *under)


def _interrupted(view: RunView, outcome: Outcome, interrupts: int, under: Sequence[str]) -> BaseException:
    assert outcome.error is not None
    lines = outcome.error.traceback or [f"\x1b[31mKeyboardInterrupt\x1b[39m: {outcome.error.evalue or 'interrupted'}"]
    if interrupts:
        return with_traceback_lines(KeyboardInterrupt(outcome.error.evalue), [*lines, *under])
    if outcome.error.code:
        return remote_error(outcome.error, *under)
    error = RunCancelledError(view.reason or "the run was cancelled from elsewhere")
    return with_traceback_lines(error, [*lines, f"\x1b[31mRunCancelledError\x1b[39m: {error.message}", *under])


def _failure_without_error(view: RunView, interrupts: int, under: Sequence[str]) -> BaseException:
    if interrupts:
        text = view.reason or "interrupted"
        return interrupted(text, [f"\x1b[31mKeyboardInterrupt\x1b[39m: {text}", *under])
    reason = view.reason or f"the run is {view.state}"
    kinds = {"cancelled": RunCancelledError, "lost": RunLostError}
    return without_traceback(kinds.get(view.state, RunFailedError)(reason), *under)
