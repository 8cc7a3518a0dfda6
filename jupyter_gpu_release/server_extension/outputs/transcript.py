"""Transcript: a run's output from its record, as its own cell would show it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...client.results import is_usable
from ...client.tracebacks import failure_of, lines_of
from ...presentation.receipt import make_receipt
from ...presentation.run_display import RunDisplay
from ...protocol.events import Event
from ...protocol.runs import RunView
from ...protocol.states import RunState
from .cell_outputs import CellOutputs, Change

_NOTE = "shown again from the cluster's record; %gpu_attach {run} binds its names in a new kernel"


class Transcript:
    """Turns a run's events and views into changes of its cell's outputs; the last one is its receipt."""

    def __init__(self, run: str) -> None:
        self._outputs = CellOutputs()
        self._display = RunDisplay(self._outputs, RunView(run=run, user="", state="submitted"), replays=True)
        #: number of the last event that was shown
        self.last_event = 0
        #: a view of the run has come: it is known whose it is
        self.is_known = False
        #: nothing more will come
        self.is_over = False

    @property
    def view(self) -> RunView:
        """The run as it is known now."""
        return self._display.view

    def show_events(self, events: Sequence[Event]) -> None:
        """Take output; what was taken before is left out."""
        new = [event for event in events if event.n > self.last_event]
        if new:
            self.last_event = new[-1].n
            self._display.show_events(new)

    def show_view(self, view: RunView) -> None:
        """Take a newer view; ends with the receipt."""
        if self.is_over:
            return
        self.is_known = True
        self._display.show_view(view)
        if is_usable(view) or RunState.of(view.state).is_terminal:
            self._end(view)
        else:
            self._display.relay.show_held_back()
            if not self._display.relay.cleared:
                self._display.say_state()

    def renew(self) -> bool:
        """Say anew what gets old: where a run stands that waits, what its widgets read; False: there is nothing."""
        display = self._display
        waits = self.is_known and not self.is_over and display.view.granted_at is None and not display.relay.cleared
        if waits:
            display.say_state()
        return waits or self._outputs.has_news_of_widgets

    def take_changes(self) -> list[Change]:
        """Return the changes since the last call."""
        self._display.relay.show(())
        return self._outputs.take_changes(is_last=self.is_over)

    def _end(self, view: RunView) -> None:
        self._display.relay.show_held_back()
        notes = [_NOTE.format(run=view.run)] if view.outcome is not None and view.outcome.results else []
        receipt = make_receipt(view, notes=notes)
        went_well = view.outcome is None and view.state == RunState.SUCCEEDED.word
        failure = None if went_well else failure_of(_without_objects(view), 0, receipt.below_traceback)
        self._display.end(receipt, failed=failure is not None)
        if failure is not None:
            error = view.outcome.error if view.outcome is not None else None
            name, text = (type(failure).__name__, str(failure)) if error is None else (error.ename, error.evalue)
            self._outputs.show_traceback(name, text, lines_of(failure))
        self.is_over = True


def _without_objects(view: RunView) -> RunView:
    """The view without pickles: a Jupyter server loads none."""
    outcome = view.outcome
    if outcome is None or outcome.error is None:
        return view
    bare = msgspec.structs.replace(outcome, error=msgspec.structs.replace(outcome.error, pickled=b""))
    return msgspec.structs.replace(view, outcome=bare)
