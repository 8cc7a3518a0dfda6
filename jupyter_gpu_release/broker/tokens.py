"""Who a bearer token belongs to. Tokens are kept as SHA-256 digests only (they are random, so no salt is needed)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import AuthenticationError
from .ledger import StoredToken

EMBEDDED_LABEL = "embedded"
_MEND = "check JUPYTER_GPU_TOKEN or the token file"


@dataclass(frozen=True)
class Caller:
    """An authenticated user. Roles: ``user`` sees the own runs, ``admin`` everybody's."""

    user: str
    role: str = "user"

    def may_see(self, owner: str) -> bool:
        """Whether runs of ``owner`` are this caller's business."""
        return self.role == "admin" or self.user == owner


def digest_of(token: str) -> str:
    """What the ledger keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def embedded_token(secret: str, user: str, now_s: float) -> StoredToken:
    """The ledger's record of the embedded cluster's one token: this machine's user, who may do everything."""
    return StoredToken(digest_of(secret), EMBEDDED_LABEL, user, "admin", None, now_s)


class TokenBook:
    """All tokens in memory, by digest."""

    def __init__(self, tokens: Iterable[StoredToken]) -> None:
        self._tokens = {token.digest: token for token in tokens}

    def caller(self, authorization: str | None, now_s: float | None = None) -> Caller:
        """Whom the Authorization header names.

        Raises
        ------
        AuthenticationError
            No bearer token, an unknown one, or (with its own message) an expired one.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AuthenticationError("the request carries no bearer token", mend="send Authorization: Bearer <token>")
        found = self._tokens.get(digest_of(token.strip()))
        if found is None:
            raise AuthenticationError("the gateway does not know this token", mend=_MEND)
        if found.expires_at is not None and (time.time() if now_s is None else now_s) >= found.expires_at:
            day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found.expires_at))
            raise AuthenticationError(
                f"this token expired on {day}", mend="ask for a new one: `jupyter gpu token create`"
            )
        return Caller(found.user, found.role)
