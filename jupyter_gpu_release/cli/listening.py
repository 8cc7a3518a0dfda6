"""Whether the gateway could listen where ``start`` was told to: said before anything is started."""

from __future__ import annotations

import socket

from ..errors import OptionError


def check_host(host: str) -> None:
    """Resolve ``host`` and bind a free port there; raises :class:`OptionError` naming ``--host``."""
    mend = "write an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them"
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"--host {host}: no such address ({reason})", mend=mend) from error
    family, kind, protocol, _, address = found[0]
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        raise OptionError(f"--host {host}: nothing can listen there ({error.strerror})", mend=mend) from error
