"""Choice of the results that go: a pure decision over frozen records.

Never removed, whatever the policy: what is pinned, what is not over (or not durable yet), what a connected kernel
holds, and what was made or used within the last hour (:data:`FRESH_S`). What another run was made from may go: its
manifest stays, so lineage keeps answering.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from ...protocol.config import RetentionPolicy
from ...settings.built_in import BUILT_IN
from ...units import format_bytes, format_seconds
from ..studies import StoredStudy

#: results are not removed before they have been left alone for so long
FRESH_S: float = BUILT_IN["left_alone_s"].default
#: results that a later run reused (``--cache``) or was made from are kept for this long after
REUSED_S: float = BUILT_IN["reused_kept_s"].default
_DAY_S = 86400.0


@dataclass(frozen=True)
class StoredResults:
    """Facts about what the store holds of one run."""

    run: str
    user: str
    #: empty: submitted by a program, not counted per notebook
    notebook: str
    submitted_at: float
    #: None: the run is not over, or its results are not durable yet
    finished_at: float | None
    #: bytes of files that are this run's alone
    own_bytes: int = 0
    #: what other runs may refer to, too: name (digest) → bytes
    shared: dict[str, int] = field(default_factory=dict)
    pinned: bool = False
    #: a connected kernel submitted, attached or loaded it
    held: bool = False
    #: when a kernel last asked for the results (0: never)
    loaded_at: float = 0.0
    #: when a later run last took the results (0: never)
    reused_at: float = 0.0

    @property
    def used_at(self) -> float:
        """The time when the results were last of use."""
        return max(self.finished_at or 0.0, self.loaded_at, self.reused_at)


@dataclass(frozen=True)
class Removal:
    """The results of ``run`` go because of ``reason``; that frees ``bytes`` (a blob that others use frees nothing)."""

    run: str
    user: str
    reason: str
    bytes: int


@dataclass(frozen=True)
class RunSpace:
    """``bytes`` of the store count for ``run``, which ``user`` submitted from ``notebook``."""

    run: str
    user: str
    notebook: str
    bytes: int


def choose_removals(runs: Sequence[StoredResults], policy: RetentionPolicy, now_s: float) -> list[Removal]:
    """The removals that ``policy`` asks for, in the order in which they shall be carried out (oldest use first)."""
    reasons = _too_old(runs, policy, now_s) | _too_many(runs, policy, now_s)
    space = _Space(runs)
    removals = [space.remove(run, reasons[run.run]) for run in _oldest_first(runs) if run.run in reasons]
    if policy.quota_bytes:
        removals += _over_quota(runs, space, policy.quota_bytes, now_s)
    return removals


def choose_studies(
    studies: Iterable[StoredStudy], policy: RetentionPolicy, busy: Container[str], now_s: float
) -> list[tuple[StoredStudy, str]]:
    """The studies of sweeps that go by age, and why; the other limits are about results: a study is small.

    ``busy``: users with a sweep under way.
    """
    least_s = max(policy.older_than_s, FRESH_S) if policy.older_than_s else float("inf")
    return [
        (study, f"not used for {_age(now_s - study.used_at)}")
        for study in sorted(studies, key=lambda study: study.used_at)
        if now_s - study.used_at > least_s and study.user not in busy
    ]


def why_kept(run: StoredResults, now_s: float) -> str:
    """The reason why the results of ``run`` may not go now, in words; empty when they may."""
    if run.finished_at is None:
        return "not over"
    if run.pinned:
        return "pinned"
    if run.held:
        return "held by a connected kernel"
    if now_s - run.reused_at < REUSED_S:
        return f"reused within {format_seconds(REUSED_S)}"
    if now_s - run.used_at < FRESH_S:
        return f"used within {format_seconds(FRESH_S)}"
    return ""


def measure_space(runs: Iterable[StoredResults]) -> list[RunSpace]:
    """Space of each run, oldest first. A blob that several runs of a user share counts for the oldest of them."""
    counted: set[tuple[str, str]] = set()
    spaces = []
    for run in sorted(runs, key=lambda run: (run.submitted_at, run.run)):
        new = {(run.user, name): size for name, size in run.shared.items() if (run.user, name) not in counted}
        counted.update(new)
        spaces.append(RunSpace(run.run, run.user, run.notebook, run.own_bytes + sum(new.values())))
    return spaces


def _too_old(runs: Iterable[StoredResults], policy: RetentionPolicy, now_s: float) -> dict[str, str]:
    if not policy.older_than_s:
        return {}
    old = [run for run in runs if now_s - run.used_at > policy.older_than_s and not why_kept(run, now_s)]
    return {run.run: f"not used for {_age(now_s - run.used_at)}" for run in old}


def _age(seconds: float) -> str:
    return f"{seconds / _DAY_S:.0f} days" if seconds >= 2 * _DAY_S else format_seconds(seconds)


def _too_many(runs: Iterable[StoredResults], policy: RetentionPolicy, now_s: float) -> dict[str, str]:
    """Pinned and held runs count: the newest ``keep`` stay, and what may not go stays besides."""
    if not policy.keep:
        return {}
    by_notebook: dict[tuple[str, str], list[StoredResults]] = defaultdict(list)
    for run in runs:
        if run.notebook:
            by_notebook[run.user, run.notebook].append(run)
    surplus: list[StoredResults] = []
    for group in by_notebook.values():
        surplus += sorted(group, key=lambda run: run.submitted_at, reverse=True)[policy.keep :]
    reason = "beyond the newest {} of {}"
    return {run.run: reason.format(policy.keep, run.notebook) for run in surplus if not why_kept(run, now_s)}


def _over_quota(runs: Sequence[StoredResults], space: _Space, quota_bytes: int, now_s: float) -> list[Removal]:
    removals = []
    for run in _oldest_first(runs):
        if run.run in space.gone or why_kept(run, now_s):
            continue
        used = space.used_by(run.user)
        if used > quota_bytes:
            reason = f"{run.user} has {format_bytes(used)} of {format_bytes(quota_bytes)}"
            removals.append(space.remove(run, reason))
    return removals


def _oldest_first(runs: Iterable[StoredResults]) -> list[StoredResults]:
    return sorted(runs, key=lambda run: (run.used_at, run.run))


class _Space:
    """The space that each user takes, as one run after the other goes."""

    def __init__(self, runs: Iterable[StoredResults]) -> None:
        self.gone: set[str] = set()
        self._uses: Counter[str] = Counter()
        self._uses_of: dict[str, Counter[str]] = defaultdict(Counter)
        self._bytes_of: Counter[str] = Counter()
        for run in runs:
            self._bytes_of[run.user] += run.own_bytes
            for name, size in run.shared.items():
                if not self._uses_of[run.user][name]:
                    self._bytes_of[run.user] += size
                self._uses_of[run.user][name] += 1
                self._uses[name] += 1

    def used_by(self, user: str) -> int:
        """Bytes that count for ``user``: each blob once, also where others use it as well."""
        return self._bytes_of[user]

    def remove(self, run: StoredResults, reason: str) -> Removal:
        """Take ``run`` away."""
        freed = run.own_bytes
        self._bytes_of[run.user] -= run.own_bytes
        for name, size in run.shared.items():
            self._uses[name] -= 1
            self._uses_of[run.user][name] -= 1
            freed += 0 if self._uses[name] else size
            self._bytes_of[run.user] -= 0 if self._uses_of[run.user][name] else size
        self.gone.add(run.run)
        return Removal(run.run, run.user, reason, freed)
