"""JSON models of tokens and garbage collection."""

from __future__ import annotations

import msgspec

from .bounds import Seconds, Word


class TokenRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token to be made. ``expires_s``: seconds from now; None: it never expires."""

    user: Word
    role: Word = "user"
    expires_s: Seconds | None = None
    label: Word = ""


class TokenRow(msgspec.Struct, frozen=True):
    """One token, without its secret. ``state``: ``active``, ``expired`` or ``revoked``; times are unix seconds.

    ``last_used_at`` is known to five minutes. ``own``: the cluster's own token, which its start makes.
    """

    id: str
    user: str
    role: str
    label: str
    state: str
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None
    own: bool = False


class TokenIssued(msgspec.Struct, frozen=True):
    """A new token and, this once, its secret."""

    token: TokenRow
    secret: str

    def __repr__(self) -> str:
        """Without the secret: records are shown in error messages and debuggers."""
        return f"TokenIssued({self.token!r})"


class TokenRevocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Choice of the tokens to revoke: the one with this ``id``, or all of ``user``."""

    id: Word = ""
    user: Word = ""


class TokensDocument(msgspec.Struct, frozen=True):
    """``token list --json``, newest first."""

    schema_version: int
    tokens: list[TokenRow]


class NodeDrain(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node to take out, or to take in again: its host name or the beginning of its id; ``:GPU``: one GPU of it."""

    node: Word
    reason: Word = ""
    #: only as long as this gateway lives
    passing: bool = False


#: of a GPU's UUID, what a user has to write at least
_SHORTEST_UUID = 8


def names_gpu(name: str, index: str, uuid: str) -> bool:
    """Tell if a user who writes ``name`` means this GPU: as it is listed, or by its UUID or the beginning of that."""
    return name == index or (len(name) >= _SHORTEST_UUID and (uuid.startswith(name) or index.startswith(name)))


class RemovalRow(msgspec.Struct, frozen=True):
    """One run whose results went (or would go). ``bytes``: what that frees; blobs that others use are not counted."""

    run: str
    user: str
    reason: str
    bytes: int


class StoredRow(msgspec.Struct, frozen=True):
    """One run on the store. ``bytes``: its files, and the blobs that no older run of its user has."""

    run: str
    user: str
    notebook: str
    bytes: int


class StudyRow(msgspec.Struct, frozen=True):
    """The study of a user's sweep that went, or would go."""

    name: str
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
    #: digests of environments that nobody has used for ``environment_retention``; for admins
    environments: list[str] = msgspec.field(default_factory=list)
    #: of sweeps: nobody has used them for as long as results stay
    studies: list[StudyRow] = msgspec.field(default_factory=list)
    #: of a dry run: the runs whose results are on the store now, oldest first
    stored: list[StoredRow] = msgspec.field(default_factory=list)
