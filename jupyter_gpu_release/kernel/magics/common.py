"""Helpers that magics share: REST client, refusal of extra words, this kernel's warm leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import OptionError
from ...protocol.rest import StatusDocument, WarmRow

if TYPE_CHECKING:
    from ...client.rest import GatewayClient
    from ..notebook import Notebook


def rest(notebook: Notebook) -> GatewayClient:
    """A client for questions to the gateway that is there; starts nothing."""
    from ...client.rest import GatewayClient

    return GatewayClient.of(notebook.link.target(notebook.settings))


def refuse_words(magic: str, line: str) -> None:
    """Raise :class:`OptionError` for words behind a magic that takes none."""
    if line.strip():
        raise OptionError(f"%{magic} {line.strip()}: it takes no words", hint=f"write %{magic}")


def own_warm_leases(status: StatusDocument, session: str) -> list[WarmRow]:
    """The warm leases that a kernel keeps, by its session with the gateway."""
    return [row for row in status.warm if row.session == session]
