"""Ports that are held for a gang's processes: nobody who asks for any free port gets one, and their owner does."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.node.gang.layout import HeldPorts

#: of the 28,000 that the system deals out, so that by chance 35 of 2,000 would be among them
_HELD, _ASKED = 500, 2000


@pytest.fixture(scope="module")
def held() -> Iterator[HeldPorts]:
    with HeldPorts("127.0.0.1", _HELD) as made:
        yield made


def _bound(address: str, port: int, *, reuse: bool) -> socket.socket:
    found = socket.socket()
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        found.bind((address, port))
    except OSError:
        found.close()
        raise
    return found


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("reuse", [False, True])
def test_who_asks_for_any_port_gets_another(held: HeldPorts, address: str, reuse: bool) -> None:
    given = set()
    for _ in range(_ASKED):
        with _bound(address, 0, reuse=reuse) as found:
            given.add(found.getsockname()[1])
    assert len(given) > _ASKED / 2
    assert not given & set(held.numbers)


def test_outgoing_connections_leave_from_others(held: HeldPorts) -> None:
    given = set()
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(_ASKED // 4):
            with socket.create_connection(server.getsockname()) as found, server.accept()[0]:
                given.add(found.getsockname()[1])
    assert not given & set(held.numbers)


def test_its_server_listens_there_while_it_is_held_and_others_cannot(held: HeldPorts) -> None:
    port = held.numbers[0]
    with pytest.raises(OSError, match="in use"):
        _bound("127.0.0.1", port, reuse=False)
    with _bound("0.0.0.0", port, reuse=True) as server:
        server.listen()
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            pass


def test_an_address_that_is_not_this_machines_is_said() -> None:
    with pytest.raises(ClusterError, match=r"no free port on 192\.0\.2\.1 for the gang's ranks"):
        HeldPorts("192.0.2.1", 1)
