"""Runs beside the notebook's cells (``--async``, ``--detach``): followed in threads, bound between cells."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...client.results import is_usable
from ...client.tracebacks import in_our_words, make_interrupt
from ...errors import GpuReleaseError, NoSuchRunError, OptionError
from ...host.interruptible import InterruptibleEvent
from ...presentation.run_display import describe_run
from ...presentation.status_line import StatusLine
from ...protocol.runs import RunView
from ...submission.placeholders import AwaitedRun, Pending, PendingNames
from ...submission.request import Submission
from ...submission.selection import placeholder
from ..interrupts import Interrupts
from ..namespace.meanwhile import InputsMeanwhile
from ..output.cell_output import CellOutput, PinnedOutput
from .follow import FollowMode, RunFollower
from .idle_hooks import BetweenCells
from .result_binder import BoundRun, ResultBinder

if TYPE_CHECKING:
    from ...client.session import GatewaySession
    from ..context import KernelContext

log = logging.getLogger(__name__)
_TICK_S = 0.25
_QUIET_S = 0.3


class BackgroundRun:
    """One run that this kernel has submitted and does not wait for."""

    def __init__(
        self, notebook: KernelContext, session: GatewaySession, submission: Submission, following: RunFollower
    ):
        self.run = submission.request.run
        self.session = session
        self._notebook = notebook
        self._submission: Submission | None = submission
        self._following = following
        self._trouble: BaseException | None = None
        #: followed to its end; what is left is to bind its names
        self.is_done = InterruptibleEvent()
        #: its names are bound
        self.is_bound = False
        self.failure: BaseException | None = None
        #: how it came home; its values are the notebook's
        self.returned: BoundRun | None = None
        #: its failure was raised by a cell
        self.is_reported = False
        #: another cell than its own has shown its output and receipt
        self.is_shown = False
        self._meanwhile: InputsMeanwhile | None = InputsMeanwhile(submission.prepared, notebook.names.realm)
        awaited = AwaitedRun(lambda: following.view)
        self.pending = PendingNames(notebook.shell.user_ns, submission.prepared.binds, awaited)

    @property
    def view(self) -> RunView:
        """The run as it is known now."""
        return self._following.view

    @property
    def ended(self) -> str:
        """The way it ended, in a word (its results may still be on their way to the store)."""
        if self.failure is not None:
            return "failed"
        return "is done" if is_usable(self.view) else "could not be followed"

    def follow(self, when_done: Callable[[], None]) -> None:
        """Begin to follow it in a thread of its own."""

        def work() -> None:
            try:
                self._following.until_usable()
            except GpuReleaseError as error:
                self._trouble = error
            except Exception as error:  # a display that fails must not hide the run's end
                log.exception("run %s could not be followed", self.run)
                self._trouble = error
            self.is_done.set()
            when_done()

        threading.Thread(target=work, name=f"gpu-run-{self.run}", daemon=True).start()

    def bind_names(self, others: Iterable[PendingNames]) -> None:
        """Bind its names and end its line with the receipt (main thread)."""
        if self.is_bound:
            return
        self.is_bound = True
        try:
            if is_usable(self.view):
                self._bind(others)
            else:
                self._give_up(others)
        except Exception as error:  # a defect of ours or of foreign code: no placeholder may stay for ever
            log.exception("the names of run %s could not be bound", self.run)
            self._trouble = error
            self._give_up(others)
        self._submission = self._meanwhile = None  # the originals of its inputs

    def _bind(self, others: Iterable[PendingNames]) -> None:
        following, view, submission = self._following, self._following.view, self._submission
        assert submission is not None
        if view.granted_at is None:
            submission.withdraw()
        kept: set[str] = set()

        def leave(names: Iterable[str]) -> set[str]:
            kept.update(self.pending.rebound(names, submission.prepared.originals))
            return kept

        names = self._notebook.names
        names.deleted_of_last = set()

        def remarks(values: dict[str, Any], failed: bool) -> list[str]:
            before = {name: self.pending.had_before(name) for name in self.pending.names}
            gone = set() if failed and not values else names.deleted_of_last
            missing = [name for name in self.pending.bind_results(values, others, gone) if name not in gone]
            notes = [_kept(name, self.run) for name in sorted(kept)]
            return notes + [_missing(name, had=before[name]) for name in missing if failed and name not in kept]

        coming = ResultBinder(
            self._notebook,
            self.session,
            submission.prepared,
            leave=leave,
            in_turn=False,
            meanwhile=self._meanwhile,
            remarks=remarks,
        )
        returned = coming.bind_run(view)
        self.failure = returned.failure
        self.returned = replace(returned, values={})
        following.display.end(returned.receipt, failed=returned.failure is not None)
        if returned.failure is not None:
            following.output.show_error(returned.failure)

    def _give_up(self, others: Iterable[PendingNames]) -> None:
        """Give up a run that cannot be followed any more; what was before comes back."""
        self.pending.bind_results({}, others)
        error = self._trouble or GpuReleaseError(f"run {self.run} could not be followed")
        self.failure = in_our_words(error)
        self._following.display.close_line(getattr(error, "message", str(error)))
        self._following.output.show_error(self.failure)


def _kept(name: str, run: str) -> str:
    return f"`{name}` was bound anew meanwhile and stays so; the run's own: gpu_release.load('{run}')['{name}']"


def _missing(name: str, *, had: bool) -> str:
    return f"`{name}` was not made" + (": it is what it was before" if had else "")


class BackgroundRuns:
    """All such runs of one kernel, oldest first."""

    def __init__(self, notebook: KernelContext) -> None:
        self._notebook = notebook
        self._runs: dict[str, BackgroundRun] = {}
        self._between = BetweenCells(notebook.shell, self._bring_up_to_date)

    # ------------------------------------------------------------------------------------- begin, end
    def begin(self, session: GatewaySession, submission: Submission, interrupts: Interrupts) -> BackgroundRun:
        """Submit, wait until the run is committed, and let it go on by itself; raises what it is refused with."""
        request = submission.request
        kind = "detached" if request.detach else "in the background"
        manner = FollowMode(patient=True, suffix=f" · {kind}, run {request.run}")
        output = PinnedOutput(self._notebook.shell)
        on_events = partial(self._notebook.published.note_published, session, request.run)
        feed = session.submit(request, while_unsent=submission.keep_inputs)
        following = RunFollower(output, session, feed, interrupts, manner, on_events)
        try:
            following.until_accepted()
        except GpuReleaseError as error:
            if not following.is_accepted:
                submission.withdraw()
            following.display.close_line(error.message)
            raise following.failure(error) from None
        except BaseException:  # nobody would look after the run any more
            session.signal(request.run, "kill")
            raise
        run = BackgroundRun(self._notebook, session, submission, following)
        self._runs[run.run] = run
        following.display.say_state()
        self._between.begin()
        run.follow(self._between.nudge)
        return run

    def close(self) -> None:
        """The extension is unloaded, or the kernel ends: what is awaited will not come."""
        self._between.end()
        for run in self._runs.values():
            if not run.is_bound:
                run.is_bound = True
                run.pending.bind_results({}, ())

    def bind_done(self) -> None:
        """Bind the names of runs that are done, oldest first (main thread)."""
        for run in self._runs.values():
            if run.is_done.is_set() and not run.is_bound:
                run.bind_names(self._pendings())

    def _bring_up_to_date(self) -> None:
        """Names of runs that are done are bound; of the others, what they have published so far."""
        self.bind_done()
        for run in self.under_way():
            for name, value in self._notebook.published.of_run(run.run).items():
                run.pending.bind_early(name, value)

    def _pendings(self) -> list[PendingNames]:
        return [run.pending for run in self._runs.values() if not run.is_bound]

    def awaited(self, name: str, value: Any) -> Pending | None:
        """Find the placeholder for a value that a run still makes, even if one is published: GPU cells wait for it."""
        for run in self.under_way():
            pending = run.pending.awaited_as(name, value)
            if pending is not None:
                return pending
        return placeholder(name, value)

    # ------------------------------------------------------------------------------------------- ask
    def find(self, run: str) -> BackgroundRun | None:
        """A run of this kernel that was sent with ``--async`` or ``--detach``."""
        return self._runs.get(run)

    def under_way(self) -> list[BackgroundRun]:
        """Runs whose names are not bound yet, oldest first."""
        return [run for run in self._runs.values() if not run.is_bound]

    def unshown(self, run: str) -> list[BackgroundRun]:
        """This run, or (empty) all, oldest first: whose output no other cell than their own has shown."""
        wanted = [self._known(run)] if run else list(self._runs.values())
        return [each for each in wanted if not each.is_shown]

    # ------------------------------------------------------------------------------------------ wait
    def wait(self, run: str) -> None:
        """``%gpu_wait [RUN]``: for one run, or (empty) for all; raises a run's own error."""
        if run:
            wanted = [self._known(run)]
        else:
            wanted = [each for each in self._runs.values() if not each.is_bound or self._owes_error(each)]
        for each in wanted:
            self._wait_for(each, f"waiting for run {each.run}")
        for each in wanted:
            if each.failure is not None and (run or not each.is_reported):
                each.is_reported = True
                raise each.failure

    def wait_for_name(self, run: str, name: str) -> None:
        """A GPU cell reads ``name``, which ``run`` is still making."""
        found = self._known(run)
        self._wait_for(found, f"`{name}`: waiting for run {run}")
        if found.failure is not None:
            found.is_reported = True
            raise found.failure

    @staticmethod
    def _owes_error(run: BackgroundRun) -> bool:
        return run.failure is not None and not run.is_reported

    def _known(self, run: str) -> BackgroundRun:
        found = self._runs.get(run)
        if found is None:
            raise NoSuchRunError(
                f"run {run} was not sent to the background by this kernel", hint=f"%gpu_attach {run} waits for any run"
            )
        return found

    def _wait_for(self, run: BackgroundRun, why: str) -> None:
        line = StatusLine(CellOutput(self._notebook.shell))
        try:
            if not run.is_done.wait(_QUIET_S):
                while not run.is_done.wait(_TICK_S):
                    line.show_text(f"{why} · {describe_run(run.view)}")
        except KeyboardInterrupt:
            text = f"interrupted; run {run.run} goes on"
            line.end(text)
            raise make_interrupt(text) from None
        self.bind_done()
        line.end(f"run {run.run} {run.ended}")

    # ---------------------------------------------------------------------------------------- detach
    def detach(self, run: str) -> list[str]:
        """``%gpu_detach [RUN]``: let one run (or all) go on without this kernel; returns their ids."""
        wanted = [self._known(run)] if run else self.under_way()
        live = [each for each in wanted if not each.is_done.is_set()]
        if not live:
            what = f"run {run} is over" if run else "no run of this notebook is in the background"
            raise OptionError(f"%gpu_detach: {what}", hint="%gpu_runs lists all runs")
        for each in live:
            each.session.detach(each.run)
        for each in live:
            self._until_detached(each)
        return [each.run for each in live]

    def _until_detached(self, run: BackgroundRun) -> None:
        while not run.view.detached and not run.is_done.wait(_TICK_S / 5):
            continue
