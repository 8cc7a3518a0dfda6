"""A run as its folder on the store tells of it: all that is left when its cluster is gone."""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..errors import StoreError
from ..protocol.lineage import Lineage, Link, RunFacts, UsedInput
from ..protocol.runs import RunView
from ..protocol.states import RunState, is_run_id
from .files import open_plain
from .layout import RunPaths
from .run_folders import read_manifest

_SILENT = "the cluster does not answer: this is the last that is known"


@dataclass(frozen=True)
class StoredRun:
    """A run as its manifest describes it. ``view``: what had not ended is as it was then.

    ``seen_s``: when its folder was last written to (unix seconds).
    """

    view: RunView
    facts: RunFacts
    seen_s: float

    @classmethod
    def read(cls, paths: RunPaths, *, opener: Callable[[Path], int] = open_plain) -> StoredRun:
        """Read its manifest; raises :class:`StoreError` where there is none, or a damaged one."""
        manifest = read_manifest(paths, opener=opener)
        (manifest.get("outcome") or {}).pop("values", None)  # a file, told in other words than in a message
        try:
            view = msgspec.convert(manifest, RunView, strict=False)
            return cls(view, _facts_in(manifest), _last_written_s(paths))
        except msgspec.ValidationError as error:
            raise StoreError(f"{paths.manifest} is not what it should be: {error}") from error

    def without_cluster(self) -> StoredRun:
        """The same once its cluster is gone: what had not ended, ended with it."""
        view = self.view
        if RunState.of(view.state).is_terminal:
            return self
        has_ended = view.outcome is not None
        reason = "its cluster ended before its results were written" if has_ended else "its cluster ended before it"
        at_s = max(self.seen_s, view.submitted_at, view.granted_at or 0.0)  # not now: nobody has held its GPUs since
        ended = msgspec.structs.replace(
            view,
            state=RunState.LOST.word,
            reason=reason,
            cause=None,
            outcome=None,
            finished_at=view.finished_at or at_s,
        )
        return StoredRun(ended, self.facts, self.seen_s)

    def while_silent(self) -> StoredRun:
        """The same while its gateway does not answer: what had not ended may have gone on."""
        if RunState.of(self.view.state).is_terminal:
            return self
        return StoredRun(msgspec.structs.replace(self.view, reason=_SILENT, cause=None), self.facts, self.seen_s)

    def lineage(self) -> Lineage:
        """The part of its lineage that a manifest tells: not what was made from it."""
        run, facts = self.view.run, self.facts
        links = [Link(run, used.name, used.run) for used in facts.used if is_run_id(used.run)]
        tracked = self.view.outcome.tracked if self.view.outcome is not None else []
        return Lineage(run, facts, tracked, [], links)


def _last_written_s(paths: RunPaths) -> float:
    found = [0.0]
    for path in (paths.manifest, paths.events):
        with contextlib.suppress(OSError):
            found.append(path.lstat().st_mtime)
    return max(found)


def newest_names(store: Path, count: int) -> list[str]:
    """The newest runs on the store, newest first; none where it cannot be listed."""
    try:
        return heapq.nlargest(count, filter(is_run_id, os.listdir(store / "runs")))
    except OSError:
        return []


def _facts_in(manifest: dict[str, Any]) -> RunFacts:
    known = {name: manifest.get(name) for name in ("code", "versions", "environment", "options")}
    facts = msgspec.convert({name: value for name, value in known.items() if value}, RunFacts, strict=False)
    used = msgspec.convert(manifest.get("inputs") or [], list[UsedInput], strict=False)
    return msgspec.structs.replace(facts, used=used)
