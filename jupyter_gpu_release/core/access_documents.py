"""Tokens of the gateway's users, as its admin routes and ``jupyter gpu token … --json`` speak of them."""

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
    """Which tokens to revoke: the one with this ``id``, or all of ``user``."""

    id: Word = ""
    user: Word = ""


class TokensDocument(msgspec.Struct, frozen=True):
    """``token list --json``, newest first."""

    schema_version: int
    tokens: list[TokenRow]
