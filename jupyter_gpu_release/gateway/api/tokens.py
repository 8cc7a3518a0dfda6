"""Admins' routes for tokens. The secret of a new one is in the answer to its creation and nowhere else."""

from __future__ import annotations

import time
from functools import partial

import msgspec
from sqlalchemy.engine import Connection
from starlette.requests import Request
from starlette.responses import Response

from ...errors import GpuReleaseError, RequestError
from ...protocol.admin import TokenIssued, TokenRequest, TokenRevocation, TokensDocument
from ...protocol.rest import DOCUMENT_VERSION
from ..auth.permissions import Caller
from ..auth.tokens import id_of, new_token
from ..db import tokens
from ..service import GatewayService
from .route import body_of


async def create_token(service: GatewayService, caller: Caller, request: Request) -> Response:
    """Make a user's token (``POST /v1/tokens``, admins); its secret is in the answer, this once.

    Raises
    ------
    LedgerError
        It cannot be committed; then there is no such token.
    """
    asked = await body_of(request, TokenRequest)
    token, secret = new_token(asked, time.time())
    facts = service.tokens.add(token, caller.user)
    try:
        await service.ledger.write(partial(tokens.add_token, token=token, facts=facts))
    except GpuReleaseError:
        service.tokens.drop_token(token)
        raise
    until = (
        "never expires" if token.expires_at is None else f"until {time.strftime('%F', time.gmtime(token.expires_at))}"
    )
    service.audit.write_entry(caller, "token.create", id_of(token.digest), detail=f"{token.role} {token.user}, {until}")
    (row,) = service.tokens.rows([token])
    issued = msgspec.json.encode(TokenIssued(row, secret))
    return Response(issued, 201, {"Cache-Control": "no-store"}, "application/json")


async def list_tokens(service: GatewayService, caller: Caller, request: Request) -> TokensDocument:
    """List all tokens, without secrets (``GET /v1/tokens``, admins)."""
    service.audit.write_entry(caller, "token.list")
    return TokensDocument(DOCUMENT_VERSION, service.tokens.rows())


async def revoke_tokens(service: GatewayService, caller: Caller, request: Request) -> TokensDocument:
    """Revoke a token, or all of a user (``POST /v1/tokens/revoke``, admins): at once, open sockets too.

    Raises
    ------
    RequestError
        Neither a token nor a user is named, or both.
    NoSuchTokenError
        There is none.
    ConflictError
        The cluster's own token is named: it is replaced by a start.
    """
    asked = await body_of(request, TokenRevocation)
    if bool(asked.id) == bool(asked.user):
        raise RequestError("a revocation names a token or a user", hint='send {"id": …} or {"user": …}')
    chosen = service.tokens.chosen(asked.id, asked.user)
    revoked = service.tokens.revoke(chosen, time.time())  # refused from here on, committed or not
    for facts in revoked:
        service.audit.write_entry(caller, "token.revoke", id_of(facts.digest))

    def write(connection: Connection) -> None:
        for facts in revoked:
            tokens.put_facts(connection, facts)

    await service.ledger.write(write)
    return TokensDocument(DOCUMENT_VERSION, service.tokens.rows(chosen))
