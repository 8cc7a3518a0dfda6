"""Tokens in the ledger: made, revoked, used; by digest, never by secret."""

from __future__ import annotations

from functools import partial

from sqlalchemy import delete, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from . import ledger
from .journal import Journal
from .schema import token_facts, tokens
from .tokens import StoredToken, TokenBook, TokenFacts

#: tokens that are over for so long are no longer listed, and then refused as unknown
_KEPT_S = 90 * 86400.0
_insert = upsert(token_facts)
_PUT = _insert.on_conflict_do_update(
    index_elements=["digest"],
    set_={name: _insert.excluded[name] for name in ("created_by", "revoked_at", "last_used_at")},
)


def read_book(connection: Connection, journal: Journal, now_s: float) -> TokenBook:
    """All tokens, those long over forgotten; their use is written down from time to time."""
    _forget(connection, now_s - _KEPT_S)
    facts = [TokenFacts(*row) for row in connection.execute(select(*token_facts.c))]

    def keep(used: TokenFacts) -> None:
        journal.later(f"token {used.digest}", partial(put_facts, facts=used))

    return TokenBook(ledger.all_tokens(connection), facts, keep)


def add_token(connection: Connection, token: StoredToken, facts: TokenFacts) -> None:
    """Record a new token beside all others of its user."""
    values = {"digest": token.digest, "label": token.label, "user": token.user, "role": token.role}
    connection.execute(insert(tokens), values | {"expires_at": token.expires_at, "created_at": token.created_at})
    put_facts(connection, facts)


def put_facts(connection: Connection, facts: TokenFacts) -> None:
    """Record what became of a token."""
    values = {"digest": facts.digest, "created_by": facts.created_by}
    connection.execute(_PUT, values | {"revoked_at": facts.revoked_at, "last_used_at": facts.last_used_at})


def _forget(connection: Connection, before_s: float) -> None:
    revoked = select(token_facts.c.digest).where(token_facts.c.revoked_at < before_s)
    connection.execute(delete(tokens).where((tokens.c.expires_at < before_s) | tokens.c.digest.in_(revoked)))
    connection.execute(delete(token_facts).where(token_facts.c.digest.not_in(select(tokens.c.digest))))
