"""Ports for a gang's processes, kept free of others from before they start until they have ended."""

from __future__ import annotations

import socket

from ...errors import ClusterError


class HeldPorts:
    """Sockets that are bound and do not listen.

    The system gives such a port to nobody else who asks for any free one, nor to outgoing connections; a server that
    names it may listen on it all the same, since both sides set SO_REUSEADDR (torch's store, gRPC, asyncio and
    Python's own servers do).
    """

    def __init__(self, address: str, count: int) -> None:
        self._address = address
        self._sockets: list[socket.socket] = []
        try:
            self.numbers = [self._hold() for _ in range(count)]
        except OSError as error:
            self.close()
            raise ClusterError(f"no free port on {address} for the gang's ranks: {error}") from error

    def nth(self, number: int) -> int:
        """One of them; 0 where none was asked for."""
        return self.numbers[number] if self.numbers else 0

    def _hold(self) -> int:
        held = socket.socket()
        self._sockets.append(held)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((self._address, 0))
        number: int = held.getsockname()[1]
        return number

    def taken(self) -> set[int]:
        """Ports at which something listens; to be asked once their owners have ended, since it means to listen, too."""
        return {number for number, held in zip(self.numbers, self._sockets, strict=True) if not _may_listen(held)}

    def close(self) -> None:
        """Let go of all."""
        while self._sockets:
            self._sockets.pop().close()

    def __enter__(self) -> HeldPorts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _may_listen(held: socket.socket) -> bool:
    try:
        held.listen(0)
    except OSError:
        return False
    return True
