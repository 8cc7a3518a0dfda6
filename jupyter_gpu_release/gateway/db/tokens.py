"""Statements about tokens, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from .rows import StoredToken
from .schema import token_facts, tokens

_insert = upsert(token_facts)
_PUT = _insert.on_conflict_do_update(
    index_elements=["digest"],
    set_={name: _insert.excluded[name] for name in ("created_by", "revoked_at", "last_used_at")},
)


@dataclass(frozen=True)
class TokenFacts:
    """The history of a token. Unix seconds; ``last_used_at`` in steps."""

    digest: str
    created_by: str = ""
    revoked_at: float | None = None
    last_used_at: float | None = None


def all_facts(connection: Connection) -> list[TokenFacts]:
    """The history of every token."""
    return [TokenFacts(*row) for row in connection.execute(select(*token_facts.c))]


def add_token(connection: Connection, token: StoredToken, facts: TokenFacts) -> None:
    """Record a new token beside all others of its user."""
    values = {"digest": token.digest, "label": token.label, "user": token.user, "role": token.role}
    connection.execute(insert(tokens), values | {"expires_at": token.expires_at, "created_at": token.created_at})
    put_facts(connection, facts)


def put_facts(connection: Connection, facts: TokenFacts) -> None:
    """Record what became of a token."""
    values = {"digest": facts.digest, "created_by": facts.created_by}
    connection.execute(_PUT, values | {"revoked_at": facts.revoked_at, "last_used_at": facts.last_used_at})


def forget_old_tokens(connection: Connection, now_s: float, most_s: float, least_s: float) -> None:
    """Forget tokens that are over for ``most_s``, or for as long as they were good (``least_s`` and more)."""
    ends = tokens.c.expires_at
    revoked = select(token_facts.c.digest).where(token_facts.c.revoked_at < now_s - most_s)
    was_short = (ends < now_s - least_s) & (ends + (ends - tokens.c.created_at) < now_s)
    old = (ends < now_s - most_s) | was_short | tokens.c.digest.in_(revoked)
    connection.execute(delete(tokens).where(old))
    connection.execute(delete(token_facts).where(token_facts.c.digest.not_in(select(tokens.c.digest))))
