"""Runs that are on the store while no cluster runs: listed, shown, their output."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ..errors import NoSuchRunError, StoreError
from ..presentation.run_row import own_row, own_view
from ..protocol.events import Event
from ..protocol.lineage import Lineage
from ..protocol.rest import DOCUMENT_VERSION, RunRow, RunsDocument
from ..protocol.runs import RunView
from ..store.event_log import read_events
from ..store.layout import RunPaths
from ..store.stored_run import StoredRun, newest_names

#: in place of an id, as where a cluster runs
_LAST = "last"


class PastRuns:
    """The runs of one store; says once on standard error that no cluster runs."""

    def __init__(self, store: Path) -> None:
        self._store = store
        sys.stderr.write(f"No cluster is running here: this is what the store {store} has.\n")

    def list_newest(self, count: int) -> RunsDocument:
        """The newest runs, newest first; damaged ones are left out."""
        now_s, rows = time.time(), list[RunRow]()
        for name in newest_names(self._store, count):
            try:
                rows.append(own_row(self._read(name).view, now_s))
            except (NoSuchRunError, StoreError):
                continue
        return RunsDocument(DOCUMENT_VERSION, rows)

    def show(self, run: str) -> tuple[RunRow, Lineage]:
        """One run with the part of its lineage that its folder tells; raises :class:`NoSuchRunError`."""
        stored = self._read(self._resolve(run))
        return own_row(stored.view, time.time()), stored.lineage()

    def output(self, run: str) -> tuple[RunView, list[Event]]:
        """A run, as its user is told why it ended, and all that it has said; raises :class:`NoSuchRunError`."""
        view = self._read(self._resolve(run)).view
        events = list(read_events(RunPaths.of(self._store, view.run).events))
        return own_view(view), events

    def _resolve(self, run: str) -> str:
        if run != _LAST:
            return run
        newest = newest_names(self._store, 1)
        if not newest:
            raise NoSuchRunError("there is no run on the store", hint="`jupyter gpu start`, then a %%gpu_train cell")
        return newest[0]

    def _read(self, run: str) -> StoredRun:
        try:
            return StoredRun.read(RunPaths.of(self._store, run)).without_cluster()
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise NoSuchRunError(
                f"run {run} is not on the store {self._store}", hint="`jupyter gpu runs` lists those that are"
            ) from error
