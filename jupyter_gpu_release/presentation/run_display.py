"""RunDisplay: a run below its cell, as status line, output and receipt."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from ..protocol.events import Event
from ..protocol.runs import RunView
from .output_sink import OutputSink
from .receipt import Receipt, name_gpus, name_lease
from .run_output import RunOutput
from .status_line import StatusLine
from .terminal import OutputCollapser
from .wording import (
    describe_pause,
    describe_wait,
    format_clock,
    holders_of_view,
    moments_of,
    place_words,
    run_word,
    start_of_view,
)


class RunDisplay:
    """Shows what is told of one run. ``replays``: what was recorded before its first view is shown folded.

    ``suffix``: words behind those of the status line.
    """

    def __init__(self, output: OutputSink, view: RunView, *, replays: bool = False, suffix: str = "") -> None:
        self.output = output
        self.view = view
        self._mark = live_mark(view.run)
        self.line = StatusLine(output, self._mark)
        self.relay = RunOutput(output, self._before_output)
        self._suffix = suffix
        self._folding = OutputCollapser() if replays else None
        #: the heading stands: the rest is said below the output
        self._is_settled = False

    def show_events(self, events: Iterable[Event]) -> None:
        """Show output, in its order."""
        self._show(events if self._folding is None else self._folding.feed(events))

    def show_view(self, view: RunView) -> None:
        """Take a newer view; all events that belong before it are shown by now."""
        if self._folding is not None:
            self._show(self._folding.rest())
            self._folding = None
        self.view = view

    def _show(self, events: Iterable[Event]) -> None:
        self.relay.show(events)
        if self.relay.cleared:
            self.line.forget_display()

    def words(self) -> str:
        """The status line's words; before its first view nothing is known of a run that is brought back."""
        return ("playing back" if self._folding is not None else describe_run(self.view)) + self._suffix

    def stage(self) -> tuple[object, ...]:
        """The stage of the run: its words may change all the time, with what is left and who holds what."""
        return self.view.state, self.view.granted_at, self.view.gone_at, self._folding is not None

    def say_state(self) -> None:
        """Have the line say where the run stands."""
        if self.view.gone_at is not None:
            self.end_output()
        self.line.show_text(self.words(), moments_of(self.view))

    def end_output(self, metadata: dict[str, Any] | None = None, *, failed: bool = False) -> None:
        """The run has ended: a line above output (or a traceback) stays as its heading, the rest is said below."""
        if not self.line.is_shown:
            return
        metadata = metadata or heading_mark(self.view.run)
        if failed and self._is_settled:
            self.line.finish_plain("the results are written", metadata)
        elif failed or (self.relay.has_shown and not self._is_settled):
            self.line.finish_plain(describe_past(self.view), metadata)
            self.line = StatusLine(self.output, self._mark)
            self._is_settled = True

    def end(self, receipt: Receipt, *, failed: bool) -> None:
        """The receipt comes last: below the output, or (as part of its text) below the traceback."""
        outcome = self.view.outcome
        if outcome is not None and outcome.error is not None:
            self.relay.show_other_errors(outcome.error.ename, outcome.error.evalue)
        self.end_output(receipt.metadata() if failed else None, failed=failed)
        if failed:
            self.line.clear_line()
        else:
            self.line.finish(receipt.bundle(), receipt.metadata())

    def close_line(self, text: str) -> None:
        """End the status line with what went wrong, where one stands."""
        self.line.clear_line()
        if self.line.is_shown:
            self.line.finish_plain(f"✗ {text}", moments=moments_of(self.view))

    def _before_output(self) -> None:
        """The line stands above the cell's output, so it must be there first."""
        if self.relay.cleared or self._is_settled:
            return
        if self.line.is_in_notebook and not self.line.is_shown:
            self.line.show_text(self.words(), moments_of(self.view))
        self.line.clear_line()


def live_mark(run: str) -> dict[str, Any]:
    """Metadata of a line that stands for a run which is not over: whoever opens the notebook later can resolve it."""
    return {"jupyter_gpu_release": {"run": run, "live": True}}


def heading_mark(run: str) -> dict[str, Any]:
    """Metadata of a heading: the run's output begins here, and its line or receipt stands below."""
    return {"jupyter_gpu_release": {"run": run}}


def describe_run(view: RunView) -> str:
    """The state of a run in the words of the status line."""
    lease = name_lease(view)
    if view.gone_at is not None:
        waits = view.waits_for
        free = "free again" if view.kept is None else f"kept until {format_clock(view.kept.until)}"
        why = "writing the results …" if waits is None else describe_wait(waits)
        return f"{run_word('persisting')} · {lease} {free} · {why}"
    reason = f" · {view.reason}" if view.reason else ""
    word = run_word(view.state)
    if view.state in ("submitted", "queued"):
        place = f" · {place_words(view.position)}" if view.position else ""
        now_s = time.time()
        later = "".join(f" · {text}" for text in (holders_of_view(view, now_s), start_of_view(view, now_s)) if text)
        paused = f"{describe_pause(view.attempts[-1], view.user)} · " if view.attempts else ""
        return f"{paused}{word} for {lease}{place}{reason}{later}"
    if view.state == "persisting":  # it has not ended, but is preempted
        why = "being saved …" if view.waits_for is None else describe_wait(view.waits_for)
        return f"{word} · {lease} free again · {why}"
    if view.state == "starting":
        return f"{word} · {name_gpus(view)}{reason}"
    stays = f" · cannot be preempted: {view.stays}" if view.stays else ""
    may_be = " · restartable" if view.restartable and not stays else ""
    return f"{word}{_place(view)}{may_be}{reason}{stays}"


def describe_past(view: RunView) -> str:
    """The heading above the output of a run that has ended."""
    return "it did not start" if view.granted_at is None else f"ran{_place(view)}"


def _place(view: RunView) -> str:
    where = f" on {', '.join(view.hosts)}" if view.hosts else ""
    ids = f" · GPU {', '.join(view.gpu_ids)}" if view.gpu_ids else ""
    return f"{where} · {name_gpus(view)}{ids}"
