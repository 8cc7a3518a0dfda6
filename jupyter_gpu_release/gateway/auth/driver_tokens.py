"""Tokens of the drivers of sweeps: one for each attempt, made as it starts, revoked as soon as it is over.

Only the digest is kept. The token itself is in the order to the rank and in the rank's memory: neither in its
environment, nor on the store, nor in a log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from ...host.certificates import first_certificate
from ...protocol.config import GatewayConfig, url_for_others
from ...protocol.node import GatewayAccess
from ..db.rows import StoredToken
from ..db.tokens import add_token, put_facts
from ..db.writer import LedgerWriter
from .permissions import SWEEP
from .tokens import TokenBook, new_secret


class DriverTokens:
    """``book`` and ``url``: as they are now (both are known only once the gateway serves)."""

    def __init__(
        self, config: GatewayConfig, ledger: LedgerWriter, book: Callable[[], TokenBook], url: Callable[[], str]
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._book = book
        self._url = url

    async def issue(self, run: str, user: str) -> GatewayAccess:
        """Let the driver ``run`` in, and no earlier attempt at it; raises :class:`LedgerError`."""
        self.revoke(run)
        token, secret = new_secret(run, user, SWEEP, time.time())
        facts = self._book().add(token, user)
        await self._ledger.write(partial(add_token, token=token, facts=facts))
        address = url_for_others(self._url(), self._config.ray_address.rpartition(":")[0])
        return GatewayAccess(address, secret, run, self._certificate())

    def revoke(self, run: str) -> None:
        """Let the driver ``run`` in no longer; its session is closed."""
        for facts in self._book().revoke(self._of(run), time.time()):
            self._ledger.write_later(f"token {facts.digest}", partial(put_facts, facts=facts))

    def _of(self, run: str) -> list[StoredToken]:
        return [token for token in self._book().active() if token.role == SWEEP and token.label == run]

    def _certificate(self) -> str:
        own = self._config.tls_cert
        return first_certificate(own) if own else ""
