"""The rank's own line to where the ranks meet (:mod:`.gang.rendezvous`), through its supervisor and the agents."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from ...cell_api.ranks import RankContext
from ...errors import RankError
from ...protocol.cell import Graph
from ...protocol.wire import decode, encode
from ...serialization import codec, rebuild
from ...units import format_bytes
from ...unpickling import Trust
from ..ipc import frames
from ..ipc.frames import FrameReader, Go, Kind, RankOrder
from .rendezvous import MOST_BYTES, CollectiveCall, CollectiveReply

#: the answer to "I give up" comes within this, or the agent is gone
_LEAVE_S = 10.0


class RankChannel:
    """Calls one round at a time, from the cell's thread; ``on_line`` frames only, nothing else reads this socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = FrameReader()
        self._turn = 0
        self._is_torn = False
        self._one_thread = threading.RLock()

    def call_collective(
        self, op: str, src: int, data: bytes, timeout_s: float | None, meeting: str = ""
    ) -> CollectiveReply:
        """Come to the next round and wait for the others; can be interrupted.

        Raises :class:`RankError` when the round cannot be, ``TimeoutError`` when not all came in time.
        """
        if not self._one_thread.acquire(blocking=False):
            raise RankError(f"{op}(): another thread of this rank is in such a call", hint="make them in one thread")
        try:
            return self._meet(op, src, data, timeout_s, meeting)
        finally:
            self._one_thread.release()

    def _meet(self, op: str, src: int, data: bytes, timeout_s: float | None, meeting: str) -> CollectiveReply:
        if self._is_torn:
            raise RankError(f"{op}(): an earlier one was interrupted half-way", hint="run the cell again")
        self._turn += 1
        self._is_torn = True  # until the answer was read whole: an interrupt may strike anywhere
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._send(CollectiveCall(self._turn, op, src, data, meeting))
        reply = self._answer(deadline)
        late = reply is None
        if reply is None:
            self._send(CollectiveCall(self._turn, "leave", meeting=meeting))
            reply = self._answer(time.monotonic() + _LEAVE_S)
        self._is_torn = False
        if reply is None:
            raise RankError(f"{op}(): this node's agent does not answer")
        if reply.error and late:
            raise TimeoutError(f"{reply.error} within {timeout_s:g} s")
        if reply.error:
            raise RankError(reply.error)
        return reply

    def _send(self, call: CollectiveCall) -> None:
        try:
            self._sock.sendall(frames.pack_frame(Kind.MEET, encode(call)))
        except OSError as error:
            raise RankError(f"{call.op}(): the line to the other ranks is gone: {error}") from error

    def _answer(self, deadline: float | None) -> CollectiveReply | None:
        """The reply to this turn; None when it does not come in time."""
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._sock], [], [], left_s)[0]:
                return None
            data = self._sock.recv(1 << 18)
            if not data:
                raise RankError("the line to the other ranks is gone")
            for _kind, body in self._frames.feed(data):
                reply = decode(body, CollectiveReply)
                if reply.turn == self._turn:
                    return reply


def make_rank_context(
    order: RankOrder, go: Go, channel: RankChannel, realm: Callable[[], rebuild.NamespaceInfo]
) -> RankContext:
    """Build what ``gpu_release.ranks`` says in a process of a gang."""

    def meet(op: str, src: int, value: Any, timeout_s: float | None) -> Any:
        data = _packed(value, realm()) if op == "broadcast" and src == order.rank else b""
        reply = channel.call_collective(op, src, data, timeout_s)
        return _unpacked(reply.data, realm()) if reply.data else value if src == order.rank else None

    is_rank = order.role == "rank"
    return RankContext(
        rank=order.rank if is_rank else max(0, order.rank - order.ranks),
        size=order.ranks,
        local_rank=go.local_rank,
        local_size=go.local_size,
        node=go.node,
        nodes=go.nodes,
        role=order.role,
        meet=meet,
        pid=os.getpid(),
    )


def _packed(value: Any, realm: rebuild.NamespaceInfo) -> bytes:
    dump = codec.dump({"value": value}, realm)
    if dump.failed:
        raise RankError(f"broadcast: the value cannot be sent: {dump.failed['value']}") from dump.failed["value"]
    data = encode(Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers]))
    if len(data) > MOST_BYTES:
        raise RankError(
            f"broadcast: the value has {format_bytes(len(data))}, at most {format_bytes(MOST_BYTES)} go this way",
            hint="use torch.distributed for tensors, or write a file in gpu_release.run_dir and broadcast its name",
        )
    return data


def _unpacked(data: bytes, realm: rebuild.NamespaceInfo) -> Any:
    graph = decode(data, Graph)
    return codec.load(graph.stream, graph.buffers, realm, trust=Trust.RANK).values["value"]
