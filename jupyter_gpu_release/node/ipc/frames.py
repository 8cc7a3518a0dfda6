"""Frames and their records on sockets."""

from __future__ import annotations

import math
import os
import socket
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import msgspec

from ...protocol.config import UnixUser
from ...protocol.node import GatewayAccess
from ...protocol.runs import ErrorInfo, Outcome, Save
from ...store.identity import expect_store


class SpoolConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts that a writer of results must know about its node."""

    #: the host's folder in the spool
    spool: str
    #: the agent's datagram socket for writers of its own user; with its folder gone the cluster has ended
    notify: str
    node: str = ""
    bytes_per_s: int = 0
    #: the store's root as the node sees it, and what ``store.json`` in it must say
    store: str = ""
    store_id: str = ""
    #: whose folder of the spool it is, where each user has one: the writer is that user's
    uid: int = 0
    gid: int = 0

    @property
    def socket(self) -> Path:
        """The agent's datagram socket for this writer: none but its user, and root, can enter the folder."""
        return Path(self.spool, "agent.sock") if self.uid else Path(self.notify)

    @property
    def has_cluster(self) -> bool:
        """Tell if the cluster is still there, as far as this user may see."""
        try:
            os.stat(os.path.dirname(self.notify))
        except PermissionError:
            return True
        except OSError:
            return False
        return True

    def expect_store(self) -> None:
        """Let this process write to that store only."""
        expect_store(Path(self.store), self.store_id)


_HEAD = struct.Struct("<IB")
HEAD_BYTES = _HEAD.size


class Kind(IntEnum):
    """Kinds of frames, by what they say."""

    WARM_UP = 18  #: agent → supervisor → rank: list[str]; there is time before an order: import these, touch the pages
    ORDER = 1  #: agent → supervisor → rank: RankOrder
    GO = 2  #: agent → supervisor → rank: Go; the cell may run
    SIGNAL = 3  #: agent → supervisor: Command
    OUTPUT = 4  #: rank → supervisor → agent: list[Output]
    SYNC = 5  #: rank → supervisor: raise ``synced`` when all before this is forwarded
    RUNNING = 6  #: rank → supervisor → agent: float, the first statement begins
    ENDED = 7  #: rank → supervisor → agent: float, the last statement ended
    OUTCOME = 8  #: rank → supervisor: Outcome
    FILES = 20  #: rank → supervisor: written_files.WrittenPaths
    LEAVING = 21  #: rank → supervisor: the process ends now; it has closed its files and holds no device
    PERSISTER = 9  #: rank → supervisor → agent: pid of the process that keeps and writes the values
    RELEASED = 11  #: supervisor → agent: Outcome; rank and descendants are gone
    MEET = 14  #: rank → supervisor → agent: meeting.Call
    MET = 15  #: agent → supervisor → rank: meeting.Reply
    ANSWER = 22  #: agent → supervisor → rank: protocol.fetch.Answer
    MARK = 13  #: rank → supervisor: memory baseline (int) of the rank before its inputs
    STUCK = 19  #: supervisor → agent: text; processes of the cell cannot be ended
    SAVED = 17  #: rank → supervisor → agent: Save; it goes on, and may be begun again from there
    HELD = 10  #: supervisor → agent: int; the rank of a gang waits at its next safe point, or is past this one
    SAVE_DUE = 12  #: rank → supervisor → agent: it is time for a save of the gang
    STAY = 16  #: rank → supervisor → agent: Stay; it was to be preempted, and goes on


class Output(msgspec.Struct, frozen=True, array_like=True):
    """One piece of output before it is numbered: ``kind`` and ``data`` as in protocol.events.Event."""

    at_s: float
    kind: str
    data: dict[str, object]


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """``interrupt`` (once: it may be told twice) or ``kill``, and the outcome's status when the run ends because of it.

    ``yield``: save, and end, at the next safe point. Of a gang: ``hold`` (wait there, and say where you are), then
    ``yield`` or ``save`` at the first safe point behind ``place``, or ``go on``.

    ``stack``: show where the rank stands, then kill it.
    ``reason``: why, in words. ``grace_s``: instead of the order's.
    """

    signal: str
    status: str = "interrupted"
    reason: str = ""
    grace_s: float | None = None
    place: int = 0


class Stay(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reason why a rank cannot be preempted, in words; ``for_now``: it may be able to later; ``of_size``: it can be,
    and goes on with as many ranks only.
    """

    reason: str
    for_now: bool = False
    of_size: bool = False


class Go(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lease is there: a rank's accelerator ids, and its place in the gang."""

    gpu_ids: list[str]
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    local_rank: int = 0
    local_size: int = 1
    node: int = 0
    nodes: int = 1
    #: of its node, where rank 0 runs on another one
    address: str = ""
    #: of a part of one: its share of the GPU, and its memory (0: not known)
    part: float = 0.0
    part_bytes: int = 0


class RankOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank to be forked."""

    run: str
    payload: bytes
    folder: str
    rank: int = 0
    ranks: int = 1
    #: ``rank``, or ``ps`` and ``evaluator``: processes without a GPU, numbered behind the ranks
    role: str = "rank"
    #: processes of the run on this node, which share its memory limit
    sharers: int = 1
    simulated: bool = False
    memory_bytes: int = 0
    cpus: float | None = None
    timeout_s: float | None = None
    grace_s: float = 5.0
    keep: SpoolConfig = SpoolConfig("", "")
    #: a rank that was granted, has not begun its cell, and does nothing at all for so long is stuck
    stall_s: float = 0.0
    #: a local file to be made right before the first statement; empty: none
    mark: str = ""
    #: the only process of its run: it tells when it is about to end
    tells_leaving: bool = False
    #: 0 is the first
    attempt: int = 0
    #: earlier attempts, if any, came to nothing before the cell began
    is_unbegun: bool = False
    restartable: bool = False
    #: seconds from the notice to the end, if it is preempted
    preempt_grace_s: float = 60.0
    #: its gang may have another size the next time
    is_elastic: bool = False
    #: state to go on from
    save: Save | None = None
    #: Unix user of the run's owner, where that matters
    owner: UnixUser | None = None
    #: the rank becomes that user before it loads anything; its supervisor stays root's, and leaves the mark
    as_owner: bool = False
    #: of the driver of a sweep
    access: GatewayAccess | None = None


def pack_frame(kind: Kind, body: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(len(body), kind) + body


def send_frame(sock: socket.socket, kind: Kind, body: bytes = b"") -> None:
    """Send one frame on a blocking socket."""
    sock.sendall(pack_frame(kind, body))


def receive_frame(sock: socket.socket) -> tuple[Kind, bytes] | None:
    """Read one frame from a blocking socket; None at its end."""
    head = _exactly(sock, HEAD_BYTES)
    if head is None:
        return None
    length, kind = _HEAD.unpack(head)
    body = _exactly(sock, length)
    return None if body is None else (Kind(kind), body)


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        piece = sock.recv(count - len(parts))
        if not piece:
            return None
        parts += piece
    return bytes(parts)


class FrameReader:
    """Cuts a byte stream into frames; what is torn at the end is never yielded.

    ``most_bytes``: of one frame, where who speaks may be a user's process.
    """

    def __init__(self, most_bytes: float = math.inf) -> None:
        self._buffer = bytearray()
        self._most_bytes = most_bytes

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """Add ``data`` and yield the frames that are complete now; raises ``OSError`` for one that is too long."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= HEAD_BYTES:
            length, kind = _HEAD.unpack_from(self._buffer, start)
            if length > self._most_bytes:
                raise ConnectionAbortedError(f"a frame of {length} bytes")
            end = start + HEAD_BYTES + length
            if len(self._buffer) < end:
                break
            yield Kind(kind), bytes(self._buffer[start + HEAD_BYTES : end])
            start = end
        del self._buffer[:start]


class KindsSeen:
    """Notes the kinds of the frames in a byte stream that is passed on as it is."""

    def __init__(self) -> None:
        self.kinds: set[int] = set()
        self._head = b""
        self._to_skip = 0

    def feed(self, data: bytes) -> None:
        """Take in the next piece."""
        at = 0
        while at < len(data):
            if self._to_skip:
                step = min(self._to_skip, len(data) - at)
                self._to_skip -= step
            else:
                step = min(HEAD_BYTES - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == HEAD_BYTES:
                    self._to_skip, kind = _HEAD.unpack(self._head)
                    self.kinds.add(kind)
                    self._head = b""
            at += step


def died_outcome(status: str, ename: str, message: str, *, code: str = "failed", hint: str = "") -> Outcome:
    """The outcome of a rank that could not report one itself."""
    return Outcome(status=status, error=ErrorInfo(ename=ename, evalue=message, code=code, hint=hint))
