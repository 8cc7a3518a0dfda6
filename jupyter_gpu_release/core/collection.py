"""What a collection of old results removed, or would: ``jupyter gpu gc --json``."""

from __future__ import annotations

import msgspec


class RemovalRow(msgspec.Struct, frozen=True):
    """One run whose results went (or would go). ``bytes``: what that frees; blobs that others use are not counted."""

    run: str
    user: str
    reason: str
    bytes: int


class GcDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """``gc --json``. ``blobs`` and ``freed_bytes`` count what was deleted (dry run: would be deleted now)."""

    schema_version: int
    dry_run: bool
    #: the policy had limits: without, only what nobody refers to is removed
    has_limits: bool
    removals: list[RemovalRow]
    freed_bytes: int
    blobs: int
    #: folders of submissions that never became a run
    orphans: list[str] = msgspec.field(default_factory=list)
    #: why results stayed that the policy would take → how many runs
    kept: dict[str, int] = msgspec.field(default_factory=dict)
    #: what could not be done, and what is not ours to remove
    notes: list[str] = msgspec.field(default_factory=list)
