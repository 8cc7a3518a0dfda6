"""Bearer tokens in memory and in the database.

A token is 256 random bits, so its SHA-256 digest is all that is kept: there is nothing to guess that salt or a slow
hash (made for passwords that people choose) could protect, and each request must be checked in microseconds. Tokens
are looked up by their digest. How long that takes depends on the digest, which nobody can steer towards a stored one
without inverting SHA-256, so the time tells nothing about any token. The digests are compared in constant time, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from sqlalchemy.engine import Connection

from ...errors import AuthenticationError, ConflictError, NoSuchTokenError, OptionError
from ...protocol.admin import TokenRequest, TokenRow
from ...settings.built_in import BUILT_IN
from ..db import database
from ..db.rows import StoredToken
from ..db.tokens import TokenFacts, all_facts, forget_old_tokens, put_facts
from ..db.writer import LedgerWriter
from .permissions import ADMIN, ROLES, SWEEP, Caller

__all__ = ["Caller", "StoredToken", "TokenBook", "TokenFacts", "UnknownTokenError", "digest_of", "embedded_token"]

EMBEDDED_LABEL = "embedded"
#: begins every token of a user: scanners for leaked secrets can look for it
SECRET_PREFIX = "jgr_"
_MEND = "check JUPYTER_GPU_TOKEN or the token file"


def _new(token: StoredToken) -> str:
    return f"an admin makes a new one: `jupyter gpu token create --user {token.user}`"


_USER = re.compile(r"[\w.@+-]{1,64}")
_LABEL = re.compile(r"[^\x00-\x1f\x7f]{0,80}")
_LONGEST_S: float = BUILT_IN["longest_token_s"].default
#: the time of a token's last use is kept no finer than this
USE_STEP_S = 300.0
#: a clock that was set is noticed this soon
_LOOK_AGAIN_S = 60.0


class UnknownTokenError(AuthenticationError):
    """A token that the gateway never gave out (or has forgotten): perhaps a guess."""


def digest_of(token: str) -> str:
    """The digest of a token, which is what the ledger keeps of it."""
    return hashlib.sha256(token.encode()).hexdigest()


def id_of(digest: str) -> str:
    """A token's public id: the beginning of its digest, which is no way back to the token."""
    return digest[:10]


def embedded_token(secret: str, user: str, now_s: float) -> StoredToken:
    """The ledger's record of the embedded cluster's one token: this machine's user, who may do everything."""
    return StoredToken(digest_of(secret), EMBEDDED_LABEL, user, ADMIN, None, now_s)


def new_token(asked: TokenRequest, now_s: float) -> tuple[StoredToken, str]:
    """A token as it is asked for, and its secret, which is kept nowhere.

    Raises
    ------
    OptionError
        A user, role, time or label that cannot be.
    """
    if not _USER.fullmatch(asked.user):
        raise OptionError(f"user {asked.user[:80]!r}: not a name", hint="1 to 64 letters, digits and . _ @ + -")
    if asked.role not in ROLES:
        raise OptionError(f"role {asked.role[:80]!r}: not a role", hint=f"write {' or '.join(ROLES)}")
    if not _LABEL.fullmatch(asked.label) or asked.label == EMBEDDED_LABEL:
        raise OptionError(
            f"label {asked.label[:80]!r}", hint=f"at most 80 characters on one line, other than {EMBEDDED_LABEL!r}"
        )
    lasts_s = asked.expires_s
    if lasts_s is not None and not 1 <= lasts_s <= _LONGEST_S:
        raise OptionError(f"a token that lasts {lasts_s:.0f} s", hint="from 1 s to 3650 days, or never")
    return new_secret(asked.label, asked.user, asked.role, now_s, None if lasts_s is None else now_s + lasts_s)


def new_secret(
    label: str, user: str, role: str, now_s: float, expires_at: float | None = None
) -> tuple[StoredToken, str]:
    """A token with a new secret, and the secret."""
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    return StoredToken(digest_of(secret), label, user, role, expires_at, now_s), secret


class TokenBook:
    """All tokens in memory, by digest. ``keep`` is told when a token's last use moves on."""

    def __init__(
        self,
        tokens: Iterable[StoredToken],
        facts: Iterable[TokenFacts] = (),
        keep: Callable[[TokenFacts], object] = lambda facts: None,
    ) -> None:
        self._tokens = {token.digest: token for token in tokens}
        known = {entry.digest: entry for entry in facts}
        self._facts = {digest: known.get(digest, TokenFacts(digest)) for digest in self._tokens}
        self._keep = keep
        self._ended: dict[str, asyncio.Event] = {}

    # ------------------------------------------------------------------------------------------- who
    def caller(self, authorization: str | None, now_s: float | None = None, origin: str = "") -> Caller:
        """The caller that the Authorization header names; ``origin`` is where the request came from.

        Raises
        ------
        AuthenticationError
            No bearer token, or (each with its own message) an unknown, a revoked or an expired one.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AuthenticationError("the request carries no bearer token", hint="send Authorization: Bearer <token>")
        digest = digest_of(token.strip())
        found = self._tokens.get(digest)
        if found is None or not hmac.compare_digest(found.digest, digest):
            raise UnknownTokenError("the gateway does not know this token", hint=_MEND)
        at_s = time.time() if now_s is None else now_s
        refusal = self._refusal(found, at_s)
        if refusal is not None:
            raise refusal
        self._note_use(digest, at_s)
        sweep = found.label if found.role == SWEEP else ""
        return Caller(found.user, found.role, id_of(digest), origin, found.expires_at, sweep)

    async def until_over(self, caller: Caller) -> AuthenticationError:
        """Wait until the caller's token is revoked or expires; returns why it is no good any more."""
        ended = self._ended.setdefault(caller.token, asyncio.Event())
        while True:
            token = self._find(caller.token)
            now_s = time.time()
            refusal = self._refusal(token, now_s) if token is not None else UnknownTokenError("the token is gone")
            if refusal is not None:
                return refusal
            left_s = None if caller.expires_at is None else min(caller.expires_at - now_s, _LOOK_AGAIN_S)
            try:
                await asyncio.wait_for(ended.wait(), left_s)
            except TimeoutError:
                continue

    def _refusal(self, token: StoredToken, now_s: float) -> AuthenticationError | None:
        revoked_at = self._facts[token.digest].revoked_at
        if revoked_at is not None:
            return AuthenticationError(f"this token was revoked on {_day(revoked_at)}", hint=_new(token))
        if token.expires_at is not None and now_s >= token.expires_at:
            return AuthenticationError(f"this token expired on {_day(token.expires_at)}", hint=_new(token))
        return None

    def _note_use(self, digest: str, now_s: float) -> None:
        step_s = max(now_s - now_s % USE_STEP_S, self._tokens[digest].created_at)
        if self._facts[digest].last_used_at != step_s:
            self._facts[digest] = replace(self._facts[digest], last_used_at=step_s)
            self._keep(self._facts[digest])

    # --------------------------------------------------------------------------------------- change
    def add(self, token: StoredToken, created_by: str) -> TokenFacts:
        """Let a new token in; returns what is to be stored with it."""
        self._tokens[token.digest] = token
        facts = self._facts[token.digest] = TokenFacts(token.digest, created_by)
        return facts

    def drop_token(self, token: StoredToken) -> None:
        """Forget a token that could not be stored."""
        self._tokens.pop(token.digest, None)

    def active(self) -> list[StoredToken]:
        """Those that are not revoked."""
        return [entry for entry in self._tokens.values() if self._facts[entry.digest].revoked_at is None]

    def chosen(self, token: str, user: str) -> list[StoredToken]:
        """The tokens to be revoked: the one with the id ``token``, or those of ``user`` that are not revoked yet.

        Raises
        ------
        NoSuchTokenError
            There is none.
        ConflictError
            The cluster's own token is named: it is replaced by a start.
        """
        if user:
            found = [entry for entry in self.active() if entry.user == user and not _is_own(entry)]
            if not found:
                raise NoSuchTokenError(
                    f"{user[:80]} has no token to revoke", hint="list them: `jupyter gpu token list`"
                )
            return found
        named = self._find(token)
        if named is None:
            raise NoSuchTokenError(f"there is no token {token[:80]}", hint="list them: `jupyter gpu token list`")
        if _is_own(named):
            raise ConflictError(
                f"{token} is the cluster's own token", hint="`jupyter gpu stop`, remove its file, `jupyter gpu start`"
            )
        return [named]

    def revoke(self, tokens: Iterable[StoredToken], now_s: float) -> list[TokenFacts]:
        """Refuse these from now on and close their sockets; returns what is to be stored."""
        changed = []
        for token in tokens:
            before = self._facts[token.digest]
            facts = self._facts[token.digest] = replace(before, revoked_at=before.revoked_at or now_s)
            changed.append(facts)
            ended = self._ended.get(id_of(token.digest))
            if ended is not None:
                ended.set()
        return changed

    # ----------------------------------------------------------------------------------------- show
    def rows(self, tokens: Iterable[StoredToken] | None = None, now_s: float | None = None) -> list[TokenRow]:
        """Tokens (all of them) without secrets, the newest first."""
        at_s = time.time() if now_s is None else now_s
        chosen = self._tokens.values() if tokens is None else tokens
        return [self._row(token, at_s) for token in sorted(chosen, key=lambda entry: -entry.created_at)]

    def _row(self, token: StoredToken, now_s: float) -> TokenRow:
        facts = self._facts[token.digest]
        over = token.expires_at is not None and now_s >= token.expires_at
        state = "revoked" if facts.revoked_at is not None else "expired" if over else "active"
        return TokenRow(
            id_of(token.digest),
            token.user,
            token.role,
            token.label,
            state,
            token.created_at,
            token.expires_at,
            facts.last_used_at,
            facts.revoked_at,
            own=_is_own(token),
        )

    def _find(self, token: str) -> StoredToken | None:
        return next((entry for entry in self._tokens.values() if id_of(entry.digest) == token), None)


def _is_own(token: StoredToken) -> bool:
    return token.label == EMBEDDED_LABEL


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))


#: tokens that are over for so long are no longer listed, and then refused as unknown; short-lived ones sooner
_KEPT_S, _KEPT_LEAST_S = 90 * 86400.0, 86400.0


def read_book(connection: Connection, ledger: LedgerWriter, now_s: float) -> TokenBook:
    """All tokens, those long over forgotten; their use is written down from time to time."""
    forget_old_tokens(connection, now_s, _KEPT_S, _KEPT_LEAST_S)
    facts = all_facts(connection)

    def keep(used: TokenFacts) -> None:
        ledger.write_later(f"token {used.digest}", partial(put_facts, facts=used))

    return TokenBook(database.all_tokens(connection), facts, keep)
