"""Rules for who gets which limits: overrides by user, kernelspec, queue, path and time of the week; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from ...errors import OptionError
from ...settings.setting import Setting, Unit
from ...settings.table import CULLER
from .policy import Action, Policy

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MEND = "write it like 'mon-fri 08:00-18:00, sat 09:00-12:00'"
#: setting of an override → field of the policy
_SETTINGS = {
    "action": "action",
    "cull_idle_timeout": "kernel_idle_s",
    "lease_idle_timeout": "lease_idle_s",
    "lease_action": "lease_action",
    "warn_before": "warn_before_s",
    "samples": "samples",
    "cull_connected": "cull_connected",
    "min_utilization": "min_utilization",
    "utilization_window": "utilization_window_s",
    "max_busy_time": "max_busy_s",
    "dry_run": "dry_run",
}
_CONDITIONS = ("user", "kernelspec", "queue", "path", "hours")


@dataclass(frozen=True, slots=True)
class Subject:
    """Names by which an override may choose a holder; an empty word matches no pattern but ``*``."""

    user: str = ""
    kernelspec: str = ""
    queue: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Hours:
    """Spans of the week: (weekday from 0 = Monday, from, to); ``to`` is not part of it."""

    spans: tuple[tuple[int, time, time], ...] = ()

    def contain(self, moment: datetime) -> bool:
        """Tell if a local time lies within."""
        clock = moment.time()
        return any(day == moment.weekday() and begin <= clock < end for day, begin, end in self.spans)


@lru_cache(maxsize=8)
def parse_hours(text: str) -> Hours:
    """Read ``mon-fri 08:00-18:00, sat 09:00-12:00``; raises :class:`OptionError` for anything else."""
    spans: list[tuple[int, time, time]] = []
    for part in filter(None, (part.strip().lower() for part in text.split(","))):
        try:
            days, clocks = part.split()
            first, _, last = days.partition("-")
            begin, end = (time.max if clock == "24:00" else time.fromisoformat(clock) for clock in clocks.split("-"))
            numbers = range(_DAYS.index(first), _DAYS.index(last or first) + 1)
        except ValueError as error:
            raise OptionError(f"business_hours: {part!r} is no span of the week", hint=_MEND) from error
        if not numbers or begin >= end:
            raise OptionError(f"business_hours: {part!r} ends before it begins", hint=_MEND)
        spans += [(day, begin, end) for day in numbers]
    return Hours(tuple(spans))


def check_overrides(overrides: Sequence[Mapping[str, Any]]) -> None:
    """Raise :class:`OptionError` for a word that no override knows, or a value that a policy cannot have."""
    for number, entry in enumerate(overrides, start=1):
        unknown = set(entry) - set(_CONDITIONS) - set(_SETTINGS)
        if unknown:
            known = ", ".join((*_CONDITIONS, *_SETTINGS))
            raise OptionError(f"override {number}: unknown {', '.join(sorted(unknown))}", hint=f"known are {known}")
        if entry.get("hours", "business") not in ("business", "outside"):
            raise OptionError(f"override {number}: hours={entry['hours']!r}", hint="'business' or 'outside'")
        _applied(Policy(), entry)


def resolve(policy: Policy, overrides: Sequence[Mapping[str, Any]], subject: Subject, *, in_hours: bool) -> Policy:
    """The policy for one subject: all overrides that match, the later ones winning."""
    for entry in overrides:
        if _matches(entry, subject, in_hours=in_hours):
            policy = _applied(policy, entry)
    return policy


def _matches(entry: Mapping[str, Any], subject: Subject, *, in_hours: bool) -> bool:
    if "hours" in entry and (entry["hours"] == "business") is not in_hours:
        return False
    names = ("user", "kernelspec", "queue", "path")
    return all(fnmatchcase(getattr(subject, name), str(entry[name])) for name in names if name in entry)


def _applied(policy: Policy, entry: Mapping[str, Any]) -> Policy:
    changes: dict[str, Any] = {}
    for name, value in entry.items():
        if name not in _SETTINGS:
            continue
        if not _is_value(CULLER[name], value):
            raise OptionError(f"override: {name}={value!r} is no value for it", hint=f"write it as c.GpuCuller.{name}")
        field = _SETTINGS[name]
        kind = type(getattr(policy, field))
        changes[field] = Action.of(value) if kind is Action else kind(value)
    return replace(policy, **changes)


def _is_value(setting: Setting, value: Any) -> bool:
    """Tell if the setting itself could have it."""
    if setting.choices:
        return value in setting.choices
    if setting.unit is Unit.YES:
        return value in (True, False)
    return isinstance(value, int | float) and setting.allows(value)


def protection(protected: Sequence[str], subject: Subject) -> str:
    """The entry that protects a subject: the first (``user:ann*``, ``path:prod/*`` …) that matches, else nothing."""
    for entry in protected:
        kind, _, pattern = entry.partition(":")
        if fnmatchcase(getattr(subject, kind), pattern):
            return entry
    return ""


def check_protected(protected: Sequence[str]) -> None:
    """Raise :class:`OptionError` for an entry that could never match: a typo must not leave somebody unprotected."""
    for entry in protected:
        kind, colon, pattern = entry.partition(":")
        if not colon or kind not in ("user", "kernelspec", "queue", "path") or not pattern:
            raise OptionError(
                f"protected: {entry!r} names nobody", hint="write it like 'path:prod/*', 'user:ann' or 'kernelspec:r*'"
            )
