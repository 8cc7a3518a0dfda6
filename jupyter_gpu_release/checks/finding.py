"""Findings: the result of a check each, and what cures it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..errors import GpuReleaseError

OK, NOTE, BROKEN = "ok", "note", "broken"
_ORDER = (BROKEN, NOTE, OK)


class Finding(msgspec.Struct, frozen=True):
    """The result of one check. ``level``: ``ok``, ``note`` (worth knowing) or ``broken`` (exit status 1).

    ``where``: ``kernel``, ``server``, ``gateway`` or a node's host; empty: the machine on which ``doctor`` was called.
    All but ``ok`` have a ``hint``: what to do about it.
    """

    check: str
    level: str
    finding: str
    hint: str = msgspec.field(default="", name="mend")
    where: str = ""

    def __post_init__(self) -> None:
        """Refuse a finding without a cure."""
        if self.level != OK and not self.hint:
            raise ValueError(f"the finding {self.finding!r} does not say what to do about it")


def ok(check: str, finding: str, *, where: str = "") -> Finding:
    """Nothing to do."""
    return Finding(check, OK, finding, where=where)


def note(check: str, finding: str, hint: str, *, where: str = "") -> Finding:
    """Worth knowing, not an error."""
    return Finding(check, NOTE, finding, hint, where)


def broken(check: str, finding: str, hint: str, *, where: str = "") -> Finding:
    """Must be mended; ``hint`` says how."""
    return Finding(check, BROKEN, finding, hint, where)


def broken_by(check: str, error: GpuReleaseError, *, where: str = "", otherwise: str = "") -> Finding:
    """The finding that an error of ours is. ``otherwise``: the cure where the error names none."""
    mend = error.hint or otherwise or "the log of the gateway, or of the Jupyter server, says more"
    return broken(check, error.message, mend, where=where)


class Report(msgspec.Struct, frozen=True):
    """``jupyter gpu doctor --json``, and ``GET doctor`` of the Jupyter server."""

    ok: bool
    findings: list[Finding]
    schema_version: int = 1


def report_on(findings: Iterable[Finding]) -> Report:
    """All findings, and whether none is broken."""
    listed = list(findings)
    return Report(all(finding.level != BROKEN for finding in listed), listed)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort them: broken before worth knowing, before fine."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.level))


def at(where: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The same findings, of this place where they name none."""
    for finding in findings:
        yield finding if finding.where else msgspec.structs.replace(finding, where=where)
