"""A run that has ended: its names are bound, its receipt is made, its error is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..core.messages import Outcome, RunView, ValueInfo
from ..core.resources import format_seconds
from ..errors import GpuReleaseError, RunCancelledError, RunFailedError, RunLostError
from ..sending.collecting import Prepared
from .failures import remote_error, with_traceback_lines, without_traceback
from .follow import Following
from .receipt import Receipt, make_receipt
from .results import open_values

if TYPE_CHECKING:
    from ..client.session import GatewaySession
    from .notebook import Notebook

Leave = Callable[[Iterable[str]], set[str]]


@dataclass(frozen=True)
class Returned:
    """``failure``: what its cell shall raise (None: it went well). ``values``: what came back, by name."""

    receipt: Receipt
    failure: BaseException | None
    values: dict[str, Any]

    def show(self, following: Following, view: RunView) -> None:
        """The receipt comes last: below the output, or (as part of its text) below the traceback."""
        failed = self.failure is not None
        if view.outcome is not None and view.outcome.error is not None:
            following.relay.show_other_errors(view.outcome.error.ename, view.outcome.error.evalue)
        following.settle(self.receipt.metadata() if failed else None, failed=failed)
        if failed:
            following.line.step_aside()
        else:
            following.line.finish(self.receipt.bundle(), self.receipt.metadata())


class Homecoming:
    """Binds what a run made. ``prepared``: what was sent (None: by another kernel, or long ago)."""

    def __init__(self, notebook: Notebook, session: GatewaySession, prepared: Prepared | None = None) -> None:
        self._notebook = notebook
        self._session = session
        self._prepared = prepared
        #: names that are not to be bound after all
        self.leave: Leave = lambda _names: set()
        #: whether random states come along (a run beside the notebook's cells must not turn them back)
        self.in_turn = True
        #: sentences for the receipt, asked for once the names are bound
        self.remarks: Callable[[dict[str, Any], bool], list[str]] = lambda _values, _failed: []

    def take_in(self, view: RunView, interrupts: int = 0) -> Returned:
        """Bind the names and say how it went; never raises what the run raised."""
        notes = list(self._prepared.notes) if self._prepared is not None else []
        came_back: Sequence[ValueInfo] = ()
        trouble: GpuReleaseError | None = None
        names = self._notebook.names
        names.values_of_last = {}
        try:
            came_back = self._bind(view, notes)
        except GpuReleaseError as problem:
            trouble = problem
            if failure_of(view, interrupts) is not None:  # else this is the error that is shown
                notes.append(f"the names are not bound: {problem}")
        values, names.values_of_last = names.values_of_last, {}
        notes += self.remarks(values, trouble is not None or failure_of(view, interrupts) is not None)
        receipt = make_receipt(view, came_back=came_back, notes=notes)
        failure = failure_of(view, interrupts, receipt.text)
        if failure is None and trouble is not None:
            receipt = replace(receipt, sign="✗", parts=("the names are not bound", *receipt.parts))
            failure = without_traceback(trouble, receipt.text)
        return Returned(receipt, failure, values)

    def _bind(self, view: RunView, notes: list[str]) -> Sequence[ValueInfo]:
        outcome = view.outcome
        if outcome is None or outcome.values is None:
            return ()
        stream, buffers = open_values(self._session, view.run, outcome.values)
        names = self._notebook.names
        bound = names.apply(
            stream, buffers, outcome, self._prepared, run=view.run, leave=self.leave, in_turn=self.in_turn
        )
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
    error = RunCancelledError(
        view.reason or "the run was cancelled, by %gpu_cancel, another program or the end of its kernel"
    )
    return with_traceback_lines(error, [*lines, f"\x1b[31mRunCancelledError\x1b[39m: {error.message}", *under])


def _failure_without_error(view: RunView, interrupts: int, under: Sequence[str]) -> BaseException:
    if interrupts:
        text = view.reason or "interrupted"
        return interrupted(text, [f"\x1b[31mKeyboardInterrupt\x1b[39m: {text}", *under])
    reason = view.reason or f"the run is {view.state}"
    kinds = {"cancelled": RunCancelledError, "lost": RunLostError}
    return without_traceback(kinds.get(view.state, RunFailedError)(reason), *under)
