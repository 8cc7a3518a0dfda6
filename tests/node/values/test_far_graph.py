"""A graph that goes from one process's memory to another's over the network."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from jupyter_gpu_release.errors import ClusterError, RankError
from jupyter_gpu_release.node.gang.channel import RankChannel
from jupyter_gpu_release.node.gang.rendezvous import CollectiveReply
from jupyter_gpu_release.node.values.gather import Offer, Part, fetch_graph, gather_names, pack_part
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.layout import RunPaths

_HERE = "127.0.0.1"
_LARGE = np.arange(1 << 20)
_REALM = NamespaceInfo({}, at_home=True, has_gpu=False)


def test_what_is_offered_is_fetched_whole_and_is_the_takers_own() -> None:
    with Offer(b"the stream", [b"", memoryview(_LARGE), b"odd"], _HERE) as offer:
        stream, (empty, array, odd) = fetch_graph(offer.offered)
    assert (stream, bytes(empty), bytes(odd)) == (b"the stream", b"", b"odd")
    found = np.frombuffer(array, _LARGE.dtype)
    found += 1
    assert (found == _LARGE + 1).all()


def test_only_who_shows_the_key_gets_it_and_others_do_not_disturb() -> None:
    with Offer(b"secret", [], _HERE) as offer:
        at = (_HERE, offer.offered.port)
        with socket.create_connection(at, timeout=10) as stranger:
            stranger.sendall(b"x" * 32)
            assert stranger.recv(100) == b""
        with socket.create_connection(at, timeout=10):
            pass  # gone without a word
        with pytest.raises(OSError, match="half-way"):
            fetch_graph(msgspec.structs.replace(offer.offered, key=b"y" * 32))
        assert fetch_graph(offer.offered)[0] == b"secret"


def test_an_offer_that_nobody_takes_ends_and_listens_no_more() -> None:
    with Offer(b"", [], _HERE) as offer:
        pass
    assert not offer._thread.is_alive()
    with pytest.raises(OSError, match="refused"):
        fetch_graph(offer.offered)


class _Line:
    """Stands for the line to the other ranks: rank 1's part is ``part``, and it comes to ``rounds`` of them."""

    def __init__(self, part: Part, rounds: int) -> None:
        self._part = part
        self._left = rounds

    def call_collective(self, op: str, src: int, data: bytes, timeout_s: float | None) -> CollectiveReply:
        self._left -= 1
        if self._left < 0:
            raise RankError("rank 1 has failed and does not come to gather()")
        return CollectiveReply(0, parts=[encode(Part()), encode(self._part)])


@pytest.mark.parametrize(("rounds", "kind", "hint"), [(2, ClusterError, "all ports"), (1, RankError, "")])
def test_values_that_do_not_come_over_are_an_error_of_their_own_unless_their_rank_is_gone(
    tmp_path: Any, rounds: int, kind: type[ClusterError | RankError], hint: str
) -> None:
    """Then the run fails for that rank's reason."""
    paths = RunPaths(tmp_path)
    with ExitStack() as held:
        part = pack_part(["x"], {"x": _LARGE}, _REALM, paths, 1, _HERE, held)
    names: dict[str, Any] = {"x": 1}
    with pytest.raises(kind, match=r"rank 1's values cannot be read from its memory: .*refused") as caught:
        gather_names(["x"], names, _REALM, paths, cast(RankChannel, _Line(part, rounds)), 0, "")
    assert hint in caught.value.hint
    assert names == {"x": 1}
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_listen_values_go_through_the_store(tmp_path: Any) -> None:
    paths = RunPaths(tmp_path)
    names: dict[str, Any] = {"x": 1}
    with ExitStack() as held:
        part = pack_part(["x"], {"x": _LARGE}, _REALM, paths, 1, "192.0.2.1", held)  # not of this machine
    assert [path.name for path in tmp_path.iterdir()] == ["gather-1.graph"]
    gather_names(["x"], names, _REALM, paths, cast(RankChannel, _Line(part, 2)), 0, "")
    assert (names["x"][1] == _LARGE).all()
    assert list(tmp_path.iterdir()) == []
