"""A port for a server that must know its own before it starts."""

from __future__ import annotations

import random
import socket

#: below the range from which the kernel serves outgoing connections: nobody's client takes it meanwhile
_PORTS = range(12_000, 32_000)


def free_port() -> int:
    """One on which nothing listens; chosen by chance, since other sessions choose too."""
    while True:
        with socket.socket() as probe:
            port = random.SystemRandom().choice(_PORTS)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
