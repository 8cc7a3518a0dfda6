"""Values that runs of this notebook have published, as they arrive with the runs' output."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol

from ...client.published_values import ReplacedError, value_of
from ...errors import GpuReleaseError
from ...protocol.events import Event, Publication, publication_of
from .values import store_of

if TYPE_CHECKING:
    from ...client.session import GatewaySession
    from .namespace import Namespace

#: how long the event of a file that was replaced may take
_REPLACED_S = 1.0


class HasNames(Protocol):
    """The notebook, as far as it matters here."""

    @property
    def names(self) -> Namespace:
        """The notebook's names."""


class PublishedValues:
    """Filled by whoever follows a run (any thread); values are rebuilt when they are asked for (main thread)."""

    def __init__(self, notebook: HasNames) -> None:
        self._notebook = notebook
        #: run → name → latest; replaced as a whole, since threads write it
        self._latest: dict[str, dict[str, Publication]] = {}
        #: run → when it published last, as a count
        self._at: dict[str, int] = {}
        self._count = itertools.count()
        self._sessions: dict[str, GatewaySession] = {}
        #: (run, name) → what was rebuilt from which
        self._values: dict[tuple[str, str], tuple[Publication, Any]] = {}

    def note_published(self, session: GatewaySession, run: str, events: Iterable[Event]) -> None:
        """Note what is published among ``events``."""
        found = [publication_of(event) for event in events if event.kind == "published"]
        if not found:
            return
        self._sessions[run] = session
        self._latest[run] = {**self._latest.get(run, {}), **{each.name: each for each in found}}
        self._at[run] = next(self._count)

    def find(self, name: str, run: str | None) -> tuple[Any] | None:
        """The latest value in a tuple, of ``run`` or of the run that published last; None: none is known here."""
        runs = [run] if run is not None else sorted(self._at, key=lambda each: -self._at[each])
        wanted = next((each for each in runs if name in self._latest.get(each, {})), None)
        if wanted is None:
            return None
        deadline = time.monotonic() + _REPLACED_S
        while (value := self._value(wanted, name)) is None and time.monotonic() < deadline:
            sleep(_REPLACED_S / 50)
        return value

    def of_run(self, run: str) -> dict[str, Any]:
        """All that ``run`` has published and that can be rebuilt now."""
        found: dict[str, Any] = {}
        for name in self._latest.get(run, {}):
            with contextlib.suppress(GpuReleaseError):
                value = self._value(run, name)
                if value is not None:
                    found[name] = value[0]
        return found

    def _value(self, run: str, name: str) -> tuple[Any] | None:
        latest = self._latest[run][name]
        known = self._values.get((run, name))
        if known is not None and known[0] is latest:
            return (known[1],)
        try:
            value = value_of(latest, run, self._notebook.names.realm, lambda: self._store(run))
        except ReplacedError:  # the newer event is on its way
            return None if known is None else (known[1],)
        self._values[run, name] = (latest, value)
        return (value,)

    def _store(self, run: str) -> Path:
        return store_of(self._sessions[run])
