"""Tokens: made, shown without secrets, refused when unknown, revoked or expired, and kept in the ledger as digests."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_gpu_release.errors import AuthenticationError, ConflictError, NoSuchTokenError, OptionError
from jupyter_gpu_release.gateway.auth import tokens as auth_tokens
from jupyter_gpu_release.gateway.auth.tokens import (
    TokenBook,
    TokenFacts,
    UnknownTokenError,
    digest_of,
    embedded_token,
    new_token,
)
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db import tokens as db_tokens
from jupyter_gpu_release.gateway.db.writer import LedgerWriter
from jupyter_gpu_release.protocol.admin import TokenIssued, TokenRequest


def made(user: str = "ann", now_s: float = 1000.0, **facts: object) -> tuple[TokenBook, str]:
    token, secret = new_token(TokenRequest(user, **facts), now_s)
    return TokenBook([embedded_token("own", "root", 0.0), token]), f"Bearer {secret}"


def test_a_token_is_256_random_bits_and_only_its_digest_is_kept() -> None:
    tokens = [new_token(TokenRequest("ann"), 0.0) for _ in range(100)]
    assert len({secret for _, secret in tokens}) == 100
    token, secret = tokens[0]
    assert secret.startswith("jgr_")
    assert len(secret.removeprefix("jgr_")) == 43
    assert secret not in repr(token)
    assert secret not in repr(TokenIssued(TokenBook([token]).rows()[0], secret))


def test_the_caller_is_known_with_id_role_and_origin() -> None:
    book, bearer = made(role="admin")
    caller = book.caller(bearer, 1000.0, "10.0.0.7")
    row = next(row for row in book.rows(now_s=1000.0) if row.user == "ann")
    assert (caller.user, caller.role, caller.is_admin, caller.token, caller.origin) == (
        "ann",
        "admin",
        True,
        row.id,
        "10.0.0.7",
    )


@pytest.mark.parametrize(
    "facts",
    [
        {"user": ""},
        {"user": "a b"},
        {"user": "x" * 65},
        {"user": "a\n"},
        {"role": "root"},
        {"role": ""},
        {"expires_s": 0.0},
        {"expires_s": -1.0},
        {"expires_s": float("nan")},
        {"expires_s": 1e12},
        {"label": "a\nb"},
        {"label": "x" * 81},
        {"label": "embedded"},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(facts: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        new_token(TokenRequest(**{"user": "ann", **facts}), 0.0)


def test_expired_revoked_and_unknown_have_their_own_words() -> None:
    book, bearer = made(expires_s=100.0)
    assert book.caller(bearer, 1099.0).user == "ann"
    with pytest.raises(AuthenticationError, match="expired on 1970-01-01 00:18 UTC"):
        book.caller(bearer, 1100.0)
    book.revoke(book.chosen("", "ann"), 1050.0)
    with pytest.raises(AuthenticationError, match="revoked on 1970-01-01 00:17 UTC"):
        book.caller(bearer, 1060.0)
    with pytest.raises(UnknownTokenError):
        book.caller("Bearer jgr_guess", 0.0)
    with pytest.raises(AuthenticationError, match="carries no bearer token"):
        book.caller(None)


def test_rows_say_the_state_and_hold_no_secret() -> None:
    book, bearer = made(expires_s=100.0, label="laptop")
    (ann, own) = book.rows(now_s=1000.0)
    assert (ann.state, ann.label, ann.own, own.own) == ("active", "laptop", False, True)
    assert book.rows(now_s=1100.0)[0].state == "expired"
    book.revoke(book.chosen(ann.id, ""), 1000.0)
    assert book.rows(now_s=1100.0)[0].state == "revoked"
    assert bearer.removeprefix("Bearer ") not in repr(book.rows())
    assert digest_of(bearer.removeprefix("Bearer ")) not in repr(book.rows())


def test_what_there_is_not_cannot_be_revoked_and_the_own_token_may_not() -> None:
    book, _ = made()
    own = next(row for row in book.rows() if row.own)
    with pytest.raises(ConflictError, match="the cluster's own"):
        book.chosen(own.id, "")
    with pytest.raises(NoSuchTokenError):
        book.chosen("", "root")
    with pytest.raises(NoSuchTokenError):
        book.chosen("nonsense", "")
    first = book.revoke(book.chosen("", "ann"), 5.0)
    with pytest.raises(NoSuchTokenError):
        book.chosen("", "ann")
    again = book.revoke(book.chosen(next(row.id for row in book.rows() if not row.own), ""), 9.0)
    assert again[0].revoked_at == first[0].revoked_at == 5.0


def test_the_last_use_is_noted_coarsely() -> None:
    kept: list[TokenFacts] = []
    token, secret = new_token(TokenRequest("ann"), 0.0)
    book = TokenBook([token], keep=kept.append)
    for now_s in (301.0, 302.0, 599.0, 600.0, 899.0):
        book.caller(f"Bearer {secret}", now_s)
    assert [facts.last_used_at for facts in kept] == [300.0, 600.0]
    with pytest.raises(AuthenticationError):
        book.caller("Bearer nobody", 2000.0)
    assert len(kept) == 2


def test_who_waits_for_a_tokens_end_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now_s=1000.0)
    fake = SimpleNamespace(time=lambda: clock.now_s, gmtime=time.gmtime, strftime=time.strftime)
    monkeypatch.setattr(auth_tokens, "time", fake)
    monkeypatch.setattr(auth_tokens, "_LOOK_AGAIN_S", 0.01)

    async def wait(book: TokenBook, bearer: str, *, revoke: bool) -> str:
        waiting = asyncio.ensure_future(book.until_over(book.caller(bearer)))
        others = asyncio.ensure_future(book.until_over(book.caller("Bearer own")))
        await asyncio.sleep(0)
        assert not waiting.done()
        if revoke:
            book.revoke(book.chosen("", "ann"), 0.0)
        else:
            clock.now_s += 100.0
        error = await asyncio.wait_for(waiting, 60)
        assert not others.done()
        others.cancel()
        return error.message

    book, bearer = made()
    assert "revoked" in asyncio.run(wait(book, bearer, revoke=True))
    book, bearer = made(expires_s=100.0)
    assert "expired" in asyncio.run(wait(book, bearer, revoke=False))


def test_the_ledger_remembers_and_in_the_end_forgets(tmp_path: Path) -> None:
    async def use() -> None:
        engine = database.open_ledger(tmp_path / "ledger.sqlite")
        ledger = LedgerWriter(engine)
        tokens = [new_token(TokenRequest("ann", expires_s=days * 86400.0), 0.0) for days in (1, 2, 400)]
        with engine.begin() as link:
            database.put_token(link, embedded_token("own", "root", 0.0))
            for token, _ in tokens:
                db_tokens.add_token(link, token, TokenFacts(token.digest, "root"))
            db_tokens.put_facts(link, replace(TokenFacts(tokens[1][0].digest, "root"), revoked_at=50.0))
        with engine.begin() as link:
            book = auth_tokens.read_book(link, ledger, 100.0)
        assert sorted(row.state for row in book.rows(now_s=100.0)) == ["active", "active", "active", "revoked"]
        book.caller(f"Bearer {tokens[2][1]}", 600.0)
        ledger.close()
        with engine.begin() as link:
            book = auth_tokens.read_book(link, ledger, 95 * 86400.0)
        rows = {row.user: row for row in book.rows(now_s=95 * 86400.0)}
        assert set(rows) == {"ann", "root"}
        assert len(book.rows()) == 2
        assert rows["ann"].last_used_at == 600.0
        engine.dispose()

    asyncio.run(use())
    content = b"".join(file.read_bytes() for file in tmp_path.glob("ledger*"))
    assert b"jgr_" not in content
