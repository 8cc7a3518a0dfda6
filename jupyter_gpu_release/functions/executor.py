"""Sends calls, handles their events, watches for lost contact (one per process)."""

from __future__ import annotations

import contextlib
import logging
import pickle
import shutil
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

from ..analysis.cell_facts import CellFacts
from ..analysis.device_choices import DeviceHistory
from ..client.discovery import has_ended
from ..client.feed import NO_EVENTS, ConnectionBack, ConnectionLost, FeedItem
from ..client.rest import GatewayClient
from ..client.results import open_values
from ..client.session import GatewaySession
from ..errors import (
    CannotSendError,
    GatewayUnavailableError,
    GpuReleaseError,
    NoSuchRunError,
    OptionError,
    RunLostError,
    StoreError,
    from_code,
)
from ..host.interruptible import InterruptibleEvent
from ..options.definitions import Written
from ..options.run_options import RunOptions
from ..presentation.plain_text import text_of, without_colours
from ..presentation.terminal import OutputCollapser
from ..protocol.cell import RESULT, CellSource
from ..protocol.events import Event
from ..protocol.rest import RunRow
from ..protocol.runs import Run, RunView
from ..protocol.session import Events, Refused
from ..protocol.states import RunState
from ..serialization import codec
from ..serialization.process_state import library_settings
from ..serialization.rebuild import NamespaceInfo
from ..submission.capture import CapturedInputs, InputCapture
from ..submission.location import CellLocation
from ..submission.placeholders import NeedsRunError
from ..submission.request import Cell, Submission, choice_of, exported_variables, find_store, make_submission
from ..submission.selection import NameChoice, Ways
from ..unpickling import Trust
from .arguments import Call, options_as_text
from .future import ListedFuture, RunFuture, word_for_function

log = logging.getLogger(__name__)
Show = Callable[[Sequence[Event]], None]


class RunEventHandler:
    """Callback for each item of a run; nothing it does may stop the session's thread."""

    def __init__(self, launched: RunFuture[Any], show: Show, on_lost: Callable[[], None]) -> None:
        self._launched = launched
        self._show = show
        self._on_lost = on_lost
        #: the gateway has committed the run, or refused it
        self.settled = InterruptibleEvent()
        self.refusal: GpuReleaseError | None = None

    def __call__(self, item: FeedItem) -> None:
        """Take one item in."""
        if isinstance(item, Events):
            self._pass_on(item.events)
        elif isinstance(item, Refused):
            self._refused(from_code(item.code, word_for_function(item.message), word_for_function(item.hint)))
        elif isinstance(item, ConnectionLost):
            if item.final:
                self._refused(item.error)
            else:
                self._on_lost()
        elif not isinstance(item, ConnectionBack):
            self._launched.update_view(item.view)
            self.settled.set()

    def _refused(self, error: GpuReleaseError) -> None:
        """Error of a refused run: before the commit it never happened, after it the gateway has forgotten the run."""
        if not self.settled.is_set():
            self.refusal = error
        elif isinstance(error, RunLostError) or error.code == "no_such_run":
            error = RunLostError(error.message, hint=error.hint)
        self._launched.give_up(error)
        self.settled.set()

    def _pass_on(self, events: Sequence[Event]) -> None:
        try:
            self._show(events)
        except Exception:  # a closed stdout must not end the session
            log.exception("output of run %s could not be shown", self._launched.id)


_LOOK_EVERY_S = 0.5
#: a gateway that restarts is back by then
_WORTH_SAYING_S = 10.0


def describe_silence(session: GatewaySession) -> str:
    """Time without news of any run, in words; empty while there is contact."""
    silent_s = session.silent_s
    return (
        "" if silent_s < _WORTH_SAYING_S else f"the gateway {session.target.url} has not answered for {silent_s:.0f} s"
    )


class LostContactWatch:
    """A thread looks after the cluster only while contact is lost."""

    def __init__(self) -> None:
        self._open: dict[str, RunFuture[Any]] = {}
        self._lock = threading.Lock()
        self._watches = False

    def watch_run(self, launched: RunFuture[Any]) -> None:
        """Look after it until it is done."""
        self._open[launched.id] = launched
        launched.when_done(lambda _: self._open.pop(launched.id, None))

    def on_contact_lost(self, session: GatewaySession) -> None:
        """The gateway does not answer just now."""
        with self._lock:
            if self._watches:
                return
            self._watches = True
        threading.Thread(target=self._watch, args=[session], name="gpu-contact", daemon=True).start()

    def _watch(self, session: GatewaySession) -> None:
        while self._is_needed(session):
            if has_ended(session.target):
                for launched in list(self._open.values()):
                    launched.give_up(
                        RunLostError(
                            f"this machine's own cluster ended while run {launched.id} was {launched.status}",
                            hint="launch it again: that starts the cluster anew",
                        )
                    )
            sleep(_LOOK_EVERY_S)

    def _is_needed(self, session: GatewaySession) -> bool:
        """Look and note it in one step: contact that is lost in between would find a watch that has just ended."""
        with self._lock:
            self._watches = not session.connected and bool(self._open)
            return self._watches


#: a gateway that has not answered a submission after this will not
_ACCEPT_S = 60.0
_WAYS = Ways("send='{name}' sends it", "export='{name}' sends it", "set it in the function")


class RemoteTracebackError(Exception):
    """The traceback of a launched function that failed, as text: the cause of what :meth:`RunFuture.result` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class FunctionExecutor(ABC):
    """Sends calls and follows their runs; one per process.

    Any thread may call its methods, but none of the session's own: :meth:`start` blocks until the gateway has committed
    the run. :class:`.NotebookExecutor` and :class:`.ScriptExecutor` say what differs between a kernel and a script: the
    abstract methods are called by :meth:`start` and :meth:`prepare`, on the caller's thread.
    """

    def __init__(self, realm: NamespaceInfo, collector: InputCapture, history: DeviceHistory) -> None:
        self.realm = realm
        self.input_capture = collector
        self._history = history
        self._contact = LostContactWatch()
        #: values are collected one at a time: the namespace's bookkeeping is not made for more
        self._collecting = threading.Lock()

    # -------------------------------------------------------------------- what scripts and notebooks do differently
    @abstractmethod
    def session(self) -> GatewaySession:
        """Return a session that is welcome at the gateway. Blocks while it connects, or a cluster starts.

        Raises
        ------
        GatewayUnavailableError, ClusterError, AuthenticationError
            The reason why there is none.
        """

    @abstractmethod
    def parse_options(self, written: Written) -> RunOptions:
        """Check the options, over this process's defaults; raises :class:`OptionError`."""

    @abstractmethod
    def location(self) -> CellLocation:
        """Location from which a function is launched now."""

    @abstractmethod
    def source_texts(self, prepared: CapturedInputs) -> Sequence[CellSource]:
        """Text that tracebacks of what is sent may show."""

    @abstractmethod
    def output_listener(self, *, live: bool) -> Show:
        """Return what shows a run's output; it is called on the session's thread and must not block.

        ``live``: the output is to be shown while it comes, else it is only recorded.
        """

    # --------------------------------------------------------------------------------------------- launch
    def start(self, call: Call, own: Mapping[str, Any], *, stream: bool = False) -> RunFuture[Any]:
        """Send one call; returns once the run is committed.

        Raises what cannot be sent, by name, before anything is queued, and what the gateway refuses.
        """
        options = self.parse_options(options_as_text(own))
        submission = self.prepare(call, options, stream=stream)
        return self.send(submission, options.name or call.name, self.output_listener(live=stream))

    def prepare(self, call: Call, options: RunOptions, *, stream: bool = False) -> Submission:
        """Find and write what the call needs; raises what cannot be sent, by name."""
        if options.restartable and options.is_gang:
            raise OptionError(
                "restartable with ranks: a function can be preempted in one process only, at its checkpoint()",
                hint="leave restartable out; retries=2 runs it again when a node dies",
            )
        exported_variables(options.export)
        prepared = self._prepare(call, options)
        session = self.session()
        cell = Cell(
            call.statement,
            options,
            self.location(),
            in_terminal=not stream,
            function=call.name,
            text=call.source,
            call=call.shown,
        )
        for line in self.input_capture.packages.add_to(prepared, options, session.welcome, session.question_client):
            warnings.warn(line, UserWarning, stacklevel=4)
        find = partial(self.store, session)
        return make_submission(cell, prepared, session.session_id, find, self.source_texts(prepared))

    def send(
        self, submission: Submission, name: str, show: Show, session: GatewaySession | None = None
    ) -> RunFuture[Any]:
        """Submit what was prepared; returns once the run is committed, raises what the gateway refuses.

        ``show`` is called with the run's output, on the session's thread. ``session``: None for the present one.
        """
        session = session or self.session()
        hearing: RunEventHandler | None = None
        try:
            launched, hearing = self._sent(session, submission, name, show)
            self._await_answer(session, hearing)
            if hearing.refusal is not None:
                submission.withdraw()
                raise hearing.refusal
            if submission.paths is not None:
                launched.add_done_callback(partial(_withdraw_unused, submission.paths.folder))
            # inside: an interrupt strikes at calls, and from here to the caller there is none
            return launched
        except BaseException:  # nobody would know of the run
            if hearing is None or hearing.refusal is None:
                session.signal(submission.request.run, "kill")
            raise

    def _prepare(self, call: Call, options: RunOptions) -> CapturedInputs:
        found = choice_of(options)
        choice = NameChoice(
            include_more=found.include_more, out=[RESULT], skip=found.skip, environment=found.environment, ways=_WAYS
        )
        ambient = pickle.dumps(
            {"settings": library_settings.capture_settings()}, protocol=5
        )  # random numbers are its own
        with self._collecting:
            try:
                prepared = self.input_capture.collect(
                    CellFacts(), choice, self._history.up_to(""), ambient=ambient, more=call.values, labels=call.labels
                )
            except NeedsRunError as need:
                raise need.refusal from None
        for warning in prepared.warnings:
            warnings.warn(warning, UserWarning, stacklevel=5)
        return prepared

    def _sent(
        self, session: GatewaySession, submission: Submission, name: str, show: Show
    ) -> tuple[RunFuture[Any], RunEventHandler]:
        request = submission.request
        first = RunView(run=request.run, user="", state="submitted", gpus=request.ask.gpus)
        launched, hearing = self._future_of(session, first, name, show)
        session.submit(request, hearing, while_unsent=submission.keep_inputs)
        return launched, hearing

    def _future_of(
        self, session: GatewaySession, view: RunView, name: str, show: Show
    ) -> tuple[RunFuture[Any], RunEventHandler]:
        tell, silence = partial(session.signal, view.run), partial(describe_silence, session)
        future: RunFuture[Any] = RunFuture(self, view, name, tell, silence)
        hearing = RunEventHandler(future, show, partial(self._contact.on_contact_lost, session))
        self._contact.watch_run(future)
        return future, hearing

    @staticmethod
    def _await_answer(session: GatewaySession, hearing: RunEventHandler) -> None:
        if not hearing.settled.wait(_ACCEPT_S):
            raise session.trouble or GatewayUnavailableError(
                f"the gateway {session.target.url} has not answered for {_ACCEPT_S:.0f} s", hint="try again"
            )

    # --------------------------------------------------------------------------------------------- come back
    def value_of(self, view: RunView, name: str) -> Any:
        """The value that a run's function returned.

        Raises :class:`CannotSendError` when it could not leave its process, :class:`StoreError` when it is not there.
        """
        loaded = self.load_values(view, name)
        for missing, reason in loaded.missing.items():
            warnings.warn(f"`{missing}` is a placeholder here: {reason}", UserWarning, stacklevel=4)
        values = {**loaded.modules, **loaded.values}
        if RESULT not in values:
            notes = view.outcome.notes if view.outcome is not None else ()
            why = next((note for note in notes if RESULT in note), "it cannot be pickled")
            raise CannotSendError(
                f"what {name}() returned cannot leave its process: {why.removesuffix(' (not returned)')}",
                hint="return what can be pickled: numbers, arrays, a state_dict",
            )
        return values[RESULT]

    def load_values(self, view: RunView, name: str) -> codec.Loaded:
        """All that a run has left, nothing bound; raises :class:`StoreError` when it is not there."""
        outcome = view.outcome
        if outcome is None or outcome.values is None:
            notes = "; ".join(outcome.notes) if outcome is not None else ""
            raise StoreError(f"run {view.run} of {name} left no result{f': {notes}' if notes else ''}")
        session = self.session() if outcome.values.file else None
        stream, buffers = open_values(view.run, outcome.values, lambda: self.store(session), "the store of the cluster")
        loaded = codec.load(stream, buffers, self.realm, trust=Trust.GATEWAY)
        self.input_capture.lineage.note_results(view.run, loaded.values, loaded.values)
        return loaded

    def follow(self, run: str, name: str, show: Show | None = None) -> RunFuture[Any]:
        """The future of a run that another process sent, live; raises :class:`NoSuchRunError`.

        ``show`` gets its output, from the beginning.
        """
        session = self.session()
        first = RunView(run=run, user="", state="submitted")
        future, hearing = self._future_of(session, first, name, show or keep_quiet)
        session.follow(run, 0 if show else NO_EVENTS, on_item=hearing)
        self._await_answer(session, hearing)
        if hearing.refusal is not None:
            raise hearing.refusal
        return future

    def earlier(self, run: str, name: str) -> RunFuture[Any]:
        """The future of a run that another process sent; one that the gateway does not know any more is lost."""
        session = self.session()
        view = RunView(run=run, user="", state="lost")
        with contextlib.suppress(NoSuchRunError), GatewayClient.for_target(session.target) as gateway:
            view = gateway.view(run)
        future: RunFuture[Any] = RunFuture(self, view, name, partial(session.signal, run))
        future.update_view(view)
        return future

    def earlier_trials(self, runs: Mapping[str, str], name: str) -> dict[str, RunFuture[Any]]:
        """As :meth:`earlier`, of the trials of sweeps, by run: the gateway is asked once. ``runs``: run → its sweep."""
        session, sweeps = self.session(), sorted({sweep for sweep in runs.values() if sweep})
        if not sweeps:
            return {run: self.earlier(run, name) for run in runs}
        with GatewayClient.for_target(session.target) as gateway:
            rows = {row.run: row for row in gateway.trials(*sweeps).runs}
        return {run: self._listed(rows.get(run), run, name) for run in runs}

    def _listed(self, row: RunRow | None, run: str, name: str) -> RunFuture[Any]:
        if row is None or not RunState.of(row.state).is_terminal:
            return self.earlier(run, name)
        view = RunView(**{field: getattr(row, field) for field in Run.__struct_fields__})
        return ListedFuture(self, view, name, partial(self._whole_view, run))

    def _whole_view(self, run: str) -> RunView:
        session = self.session()
        with GatewayClient.for_target(session.target) as gateway:
            return gateway.view(run, session=session.session_id)

    def logs(self, run: str) -> str:
        """The recorded output of a run, folded."""
        folding, texts, after = OutputCollapser(), [], 0
        with GatewayClient.for_target(self.session().target) as gateway:
            while True:
                page = gateway.events(run, after)
                texts += [text_of(event) for event in folding.feed(page.events)]
                after = page.last
                if not page.more:
                    break
        return "".join([*texts, *(text_of(event) for event in folding.rest())])

    @staticmethod
    def with_traceback(failure: BaseException, view: RunView) -> BaseException:
        """``failure`` with the traceback there as its cause."""
        error = view.outcome.error if view.outcome is not None else None
        if error is not None and error.traceback and not error.code:
            failure.__cause__ = RemoteTracebackError(without_colours("\n".join(error.traceback)))
        return failure

    def store(self, session: GatewaySession | None) -> Path:
        """The store's root as it is seen from here; raises :class:`StoreError`."""
        session = session or self.session()
        return find_store(session.target.store, session.welcome, configured=session.target.configured)


def keep_quiet(_events: Sequence[Event]) -> None:
    """Show nothing; output is recorded, and ``logs()`` has it."""


def _withdraw_unused(folder: Path, launched: RunFuture[Any]) -> None:
    """Inputs of a run that was never granted are nobody's. (The submission itself would keep the arguments alive.)"""
    if launched.view.granted_at is None:
        shutil.rmtree(folder, ignore_errors=True)
