"""The finding of a check of ``jupyter gpu doctor``: one line, and what to do about it."""

from __future__ import annotations

import msgspec

OK, NOTE, BROKEN = "ok", "note", "broken"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check. ``level``: ``ok``, ``note`` (worth knowing) or ``broken`` (exit status 1)."""

    check: str
    level: str
    finding: str
    hint: str = msgspec.field(default="", name="mend")


def ok(check: str, finding: str) -> Finding:
    """Nothing to do."""
    return Finding(check, OK, finding)


def note(check: str, finding: str, hint: str = "") -> Finding:
    """Worth knowing, not an error."""
    return Finding(check, NOTE, finding, hint)


def broken(check: str, finding: str, hint: str) -> Finding:
    """Must be mended; ``hint`` says how."""
    return Finding(check, BROKEN, finding, hint)


class Report(msgspec.Struct, frozen=True):
    """``jupyter gpu doctor --json``."""

    ok: bool
    findings: list[Finding]
    schema_version: int = 1
