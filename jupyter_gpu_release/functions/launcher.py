"""Sends functions to the cluster from one process: what scripts and notebooks have in common."""

from __future__ import annotations

import logging
import pickle
import re
import shutil
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..client.rest import GatewayClient
from ..client.results import open_values
from ..client.session import GatewaySession
from ..core.cell import CellFacts
from ..core.choices import RunOptions
from ..core.folding import Folding
from ..core.messages import CellSource, RunView
from ..core.options import Written
from ..core.plain_output import text_of
from ..errors import CannotSendError, GatewayUnavailableError, StoreError
from ..sending.collecting import Collector, Prepared
from ..sending.history import DeviceHistory
from ..sending.pending import NeedsRunError
from ..sending.place import Place
from ..sending.selection import Choice, Ways
from ..sending.submission import Cell, Submission, choice_of, exported, find_store, make_submission
from ..storage import codec, settings
from ..storage.rebuild import Realm
from .ahead import Ahead
from .call import RESULT, Call
from .contact import Contact, silence
from .hearing import Hearing, Show
from .keywords import as_written
from .launched import Launched
from .series import Series

log = logging.getLogger(__name__)
#: a gateway that has not answered a submission after this will not
_ACCEPT_S = 60.0
_WAYS = Ways("send='{name}' sends it", "export='{name}' sends it", "set it in the function")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class RemoteTracebackError(Exception):
    """Where a launched function failed, as text: the cause of what :meth:`Launched.result` raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Launcher(ABC):
    """One per process. All methods may be called from any thread."""

    def __init__(self, realm: Realm, collector: Collector, history: DeviceHistory) -> None:
        self.realm = realm
        self.collector = collector
        self._history = history
        self._contact = Contact()
        self._series = Series()
        self._ahead = Ahead()
        #: values are collected one at a time: the namespace's bookkeeping is not made for more
        self._collecting = threading.Lock()

    # -------------------------------------------------------------------- what scripts and notebooks do differently
    @abstractmethod
    def session(self) -> GatewaySession:
        """A session that is welcome at the gateway; raises the reason why there is none."""

    @abstractmethod
    def options(self, written: Written) -> RunOptions:
        """The options, over this process's defaults; raises :class:`OptionError`."""

    @abstractmethod
    def place(self) -> Place:
        """From where a function is launched now."""

    @abstractmethod
    def sources(self, prepared: Prepared) -> Sequence[CellSource]:
        """Text that tracebacks of what is sent may show."""

    @abstractmethod
    def shower(self, *, live: bool) -> Show:
        """Where the output of a run goes (``live``: it is to be shown at all). Called on the session's thread."""

    # --------------------------------------------------------------------------------------------- launch
    def start(self, call: Call, own: Mapping[str, Any], *, stream: bool = False) -> Launched[Any]:
        """Send one call; returns once the run is committed, or a call like it was.

        Raises what cannot be sent, by name, before anything is queued, and what the gateway refuses.
        """
        options = self.options(as_written(own))
        exported(options.export)
        prepared = self._prepare(call, options)
        session = self.session()
        cell = Cell(
            call.statement, options, self.place(), in_terminal=not stream, function=call.name, text=call.source,
            series=self._series.word(call.function, options, stream=stream),
        )  # fmt: skip
        find = partial(self._store, session)
        submission = make_submission(cell, prepared, session.session_id, find, self.sources(prepared))
        show = self.shower(live=stream)
        kind = (session.session_id, cell.series, repr(options.ask))
        alone = not cell.series or submission.paths is not None or not session.connected
        try:
            launched, hearing = self._sent(session, submission, options.name or call.name, show)
            if alone or not self._ahead.may_go(kind, hearing, _ACCEPT_S):
                self._await_answer(session, hearing)
                self._ahead.note(kind)
        except BaseException:  # nobody would know of the run
            session.signal(submission.request.run, "kill")
            raise
        if hearing.refusal is not None:
            submission.withdraw()
            raise hearing.refusal
        if submission.paths is not None:
            launched.add_done_callback(partial(_withdraw_unused, submission.paths.folder))
        return launched

    def _prepare(self, call: Call, options: RunOptions) -> Prepared:
        found = choice_of(options)
        choice = Choice(
            include_more=found.include_more, out=[RESULT], skip=found.skip, environment=found.environment, ways=_WAYS
        )
        ambient = pickle.dumps({"settings": settings.capture_settings()}, protocol=5)  # random numbers are its own
        with self._collecting:
            try:
                prepared = self.collector.collect(
                    CellFacts(), choice, self._history.up_to(""), ambient=ambient, more=call.values, labels=call.labels
                )
            except NeedsRunError as need:
                raise need.refusal from None
        for warning in prepared.warnings:
            warnings.warn(warning, UserWarning, stacklevel=5)
        return prepared

    def _sent(
        self, session: GatewaySession, submission: Submission, name: str, show: Show
    ) -> tuple[Launched[Any], Hearing]:
        run = submission.request.run
        first = RunView(run=run, user="", state="submitted", gpus=submission.request.ask.gpus)
        launched: Launched[Any] = Launched(self, first, name, partial(session.signal, run), partial(silence, session))
        hearing = Hearing(launched, show, partial(self._contact.lost, session))
        self._contact.add(launched)
        session.submit(submission.request, hearing, while_unsent=submission.keep)
        return launched, hearing

    @staticmethod
    def _await_answer(session: GatewaySession, hearing: Hearing) -> None:
        if not hearing.settled.wait(_ACCEPT_S):
            raise session.trouble or GatewayUnavailableError(
                f"the gateway {session.target.url} has not answered for {_ACCEPT_S:.0f} s", mend="try again"
            )

    # --------------------------------------------------------------------------------------------- come back
    def value_of(self, view: RunView, name: str) -> Any:
        """What a run's function returned.

        Raises :class:`CannotSendError` when it could not leave its process, :class:`StoreError` when it is not there.
        """
        outcome = view.outcome
        if outcome is None or outcome.values is None:
            notes = "; ".join(outcome.notes) if outcome is not None else ""
            raise StoreError(f"run {view.run} of {name} left no result{f': {notes}' if notes else ''}")
        session = self.session() if outcome.values.file else None
        stream, buffers = open_values(
            view.run, outcome.values, lambda: self._store(session), "the store of the cluster"
        )
        loaded = codec.load(stream, buffers, self.realm)
        for missing, reason in loaded.missing.items():
            warnings.warn(f"`{missing}` is a placeholder here: {reason}", UserWarning, stacklevel=4)
        self.collector.origins.note(view.run, loaded.values, loaded.values)
        values = {**loaded.modules, **loaded.values}
        if RESULT not in values:
            why = next((note for note in outcome.notes if RESULT in note), "it cannot be pickled")
            raise CannotSendError(
                f"what {name}() returned cannot leave its process: {why.removesuffix(' (not returned)')}",
                mend="return what can be pickled: numbers, arrays, a state_dict",
            )
        return values[RESULT]

    def logs(self, run: str) -> str:
        """What is recorded of a run's output, folded."""
        folding, texts, after = Folding(), [], 0
        with GatewayClient.of(self.session().target) as gateway:
            while True:
                page = gateway.events(run, after)
                texts += [text_of(event) for event in folding.feed(page.events)]
                after = page.last
                if not page.more:
                    break
        return "".join([*texts, *(text_of(event) for event in folding.rest())])

    @staticmethod
    def shown(failure: BaseException, view: RunView) -> BaseException:
        """``failure`` with the traceback there as its cause."""
        error = view.outcome.error if view.outcome is not None else None
        if error is not None and error.traceback and not error.code:
            failure.__cause__ = RemoteTracebackError(_COLOURS.sub("", "\n".join(error.traceback)))
        return failure

    def _store(self, session: GatewaySession | None) -> Path:
        session = session or self.session()
        target, welcome = session.target, session.welcome
        if welcome is None:
            return find_store(target.store, "", configured=target.configured)
        return find_store(target.store, welcome.store, configured=target.configured, ident=welcome.store_id)


def _withdraw_unused(folder: Path, launched: Launched[Any]) -> None:
    """Inputs of a run that was never granted are nobody's. (The submission itself would keep the arguments alive.)"""
    if launched.view.granted_at is None:
        shutil.rmtree(folder, ignore_errors=True)
