"""``--gather``: values of all ranks, in memory.

The memory has no name on any filesystem, so nothing is left behind whoever dies: it goes with its last holder.

The process that has it listens, as ranks do for each other anyway, and sends it once to whoever shows the key, which
went with the offer over the gang's own line.

All hand theirs over from memory to memory, so the GPUs are free before anything is written. Only what cannot go that
way (memory for a copy is short, nothing can listen) comes through the store.
"""

from __future__ import annotations

import contextlib
import hmac
import mmap
import os
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from ...errors import CannotSendError, ClusterError, RankError
from ...protocol.cell import INLINE_LIMIT_BYTES, Graph
from ...protocol.wire import decode, encode
from ...serialization import codec, rebuild
from ...serialization.load_order import global_reads
from ...store.graph_file import read_graph, write_graph
from ...store.layout import RunPaths, of_attempt
from ...unpickling import Trust
from ..gang.channel import RankChannel

_ALIGNMENT = 64


class InMemory(msgspec.Struct, frozen=True):
    """Place of a graph: an open file of process ``pid``. ``lengths`` in bytes: the stream's, then the buffers'."""

    pid: int
    descriptor: int
    lengths: list[int]


def put_in_memory(stream: bytes, buffers: Sequence[Any]) -> InMemory:
    """Copy a graph into memory that lives as long as this process; raises ``OSError`` when there is too little."""
    views = views_of(stream, buffers)
    descriptor = os.memfd_create("jgr-graph", os.MFD_CLOEXEC)
    try:
        for view, (begin, _) in zip(views, pairwise(part_offsets(list(map(len, views)))), strict=True):
            _write_all(descriptor, view, begin)
    except OSError:
        os.close(descriptor)
        raise
    return InMemory(os.getpid(), descriptor, list(map(len, views)))


def read_from_memory(where: InMemory) -> tuple[bytes, list[memoryview]]:
    """Stream and buffers (writable, of this process alone); raises ``OSError`` when their process is gone."""
    begins = part_offsets(where.lengths)
    with open(f"/proc/{where.pid}/fd/{where.descriptor}", "rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    stream, *buffers = [whole[begin : begin + length] for begin, length in zip(begins, where.lengths, strict=False)]
    return bytes(stream), buffers


def views_of(stream: bytes, buffers: Sequence[Any]) -> list[memoryview]:
    """The bytes of a graph, as they follow each other."""
    return [memoryview(part).cast("B") for part in (stream, *buffers)]


def part_offsets(lengths: Sequence[int]) -> list[int]:
    """Offsets at which the parts begin, aligned, and the end."""
    found = [0]
    for length in lengths:
        found.append(-(-(found[-1] + length) // _ALIGNMENT) * _ALIGNMENT)
    return found


def _write_all(descriptor: int, view: memoryview, at: int) -> None:
    """The system takes at most 2 GiB at once."""
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


_KEY_BYTES = 32
#: whoever connects shows the key at once, or is no rank
_KEY_S = 5.0
#: a transfer that gets nowhere for so long has failed; ``sendall`` counts the whole of what it is given: a step
_STUCK_S = 60.0
_STEP_BYTES = 8 << 20


class Offered(msgspec.Struct, frozen=True):
    """Place where a graph can be fetched. ``lengths`` in bytes: the stream's, then the buffers'."""

    address: str
    port: int
    key: bytes
    lengths: list[int]


class Offer:
    """A graph for one taker, until it is closed; raises ``OSError`` when nothing can listen at ``address``."""

    def __init__(self, stream: bytes, buffers: Sequence[Any], address: str) -> None:
        self._views = views_of(stream, buffers)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        port: int = self._listener.getsockname()[1]
        self.offered = Offered(address, port, secrets.token_bytes(_KEY_BYTES), list(map(len, self._views)))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> Offer:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends a wait for somebody to come, which close() does not
        self._thread.join(_KEY_S)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while not self._send_to(self._listener.accept()[0]):
                pass

    def _send_to(self, link: socket.socket) -> bool:
        """Returns whether this was the taker."""
        with link, contextlib.suppress(OSError):
            link.settimeout(_KEY_S)
            shown = bytearray(_KEY_BYTES)
            _receive(link, memoryview(shown))
            if not hmac.compare_digest(shown, self.offered.key):
                return False
            link.settimeout(_STUCK_S)
            for view in self._views:
                for begin in range(0, len(view), _STEP_BYTES):
                    link.sendall(view[begin : begin + _STEP_BYTES])
            return True
        return False


def fetch_graph(where: Offered) -> tuple[bytes, list[memoryview]]:
    """Stream and buffers (writable, of this process alone); raises ``OSError`` when they do not come."""
    begins = part_offsets(where.lengths)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    whole = memoryview(mmap.mmap(-1, max(1, begins[-1]), flags=private))
    stream, *buffers = [whole[begin : begin + length] for begin, length in zip(begins, where.lengths, strict=False)]
    with socket.create_connection((where.address, where.port), timeout=_STUCK_S) as link:
        link.sendall(where.key)
        for part in (stream, *buffers):
            _receive(link, part)
    return bytes(stream), buffers


def _receive(link: socket.socket, into: memoryview) -> None:
    while into:
        got = link.recv_into(into)
        if not got:
            raise ConnectionResetError("the connection ended half-way")
        into = into[got:]


_NO_SUCH_NAME = "it has no such name"
#: what all ranks have alike
_THE_SAME = (ModuleType, FunctionType, type)


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """Share of one rank: its values as a graph (or where it lies), and for names that cannot be sent the reason."""

    graph: Graph = Graph()
    memory: InMemory | None = None
    offered: Offered | None = None
    missing: dict[str, str] = msgspec.field(default_factory=dict)


def pack_part(
    names: Sequence[str],
    namespace: Mapping[str, Any],
    realm: rebuild.NamespaceInfo,
    paths: RunPaths,
    rank: int,
    address: str,
    held: contextlib.ExitStack,
) -> Part:
    """Pack this rank's values. Large ones stay in its memory, for as long as ``held`` does.

    ``address``: of this node, for rank 0 on another one; "" on rank 0's own.
    """
    missing = {name: _NO_SUCH_NAME for name in names if name not in namespace}
    dump = codec.dump({name: namespace[name] for name in names if name not in missing}, realm)
    missing |= {name: f"{type(error).__name__}: {error}" for name, error in dump.failed.items()}
    part = offer_part(
        dump.stream, dump.buffers, paths.folder / of_attempt(f"gather-{rank}.graph", paths.attempt), address, held
    )
    return msgspec.structs.replace(part, missing=missing)


def offer_part(stream: bytes, buffers: Sequence[Any], file: Path, address: str, held: contextlib.ExitStack) -> Part:
    """Let rank 0 have a graph: with the answer, from this process's memory, or, where that cannot be, from a file."""
    if len(stream) + sum(buffer.nbytes for buffer in buffers) <= INLINE_LIMIT_BYTES:
        return Part(Graph(stream=stream, buffers=[bytes(buffer) for buffer in buffers]))
    with contextlib.suppress(OSError):
        if not address:
            return Part(memory=put_in_memory(stream, buffers))
        return Part(offered=held.enter_context(Offer(stream, buffers, address)).offered)
    return Part(Graph(file=file.name, digest=write_graph(file, stream, buffers)))


def gather_names(
    names: Sequence[str],
    namespace: dict[str, Any],
    realm: rebuild.NamespaceInfo,
    paths: RunPaths,
    channel: RankChannel,
    rank: int,
    address: str,
) -> list[str]:
    """Send this rank's values; on rank 0 wait for the others' and bind each name to the list of all.

    Returns notes for the receipt. Raises :class:`CannotSendError` naming rank and name, on rank 0, for what could not
    be sent; the other names are bound all the same. Raises :class:`RankError` when a rank has ended without sending,
    :class:`ClusterError` when what one has does not reach rank 0.
    """
    with contextlib.ExitStack() as held:
        part = Part() if rank == 0 else pack_part(names, namespace, realm, paths, rank, address, held)
        reply = channel.call_collective("gather", 0, encode(part), None)
        parts = [decode(data, Part) for data in reply.parts]
        problem = None
        try:
            opened = [open_part(part, number, paths.folder) for number, part in enumerate(parts) if number]
        except ClusterError as error:
            problem = error
        finally:
            all_there = _meet_again(channel)  # what lies in another rank's memory ends with that one
        if problem is not None:
            raise problem if all_there else RankError(problem.message)
    if rank:
        return []
    loaded = [dict(codec.load(stream, buffers, realm, trust=Trust.RANK).values) for stream, buffers in opened]
    lacking = {name: {n: part.missing[name] for n, part in enumerate(parts) if name in part.missing} for name in names}
    for name in names:
        if name not in namespace:
            lacking[name][0] = _NO_SUCH_NAME
        if not lacking[name]:
            namespace[name] = [namespace[name], *(values[name] for values in loaded)]
    _raise_for({name: found for name, found in lacking.items() if found}, len(parts))
    return [note for name in names for note in _of_one_namespace(name, namespace)]


def _of_one_namespace(name: str, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Functions have their globals in the notebook, all of them: those of rank 0."""
    function = namespace[name][0]
    if not isinstance(function, FunctionType) or function.__globals__ is not namespace:
        return
    reads = [
        read
        for read in global_reads(function.__code__)
        if read in namespace and not isinstance(namespace[read], _THE_SAME)
    ]
    if reads:
        named = ", ".join(f"`{read}`" for read in reads)
        yield (
            f"`{name}` are functions that read {named}: in the notebook all of them read rank 0's "
            "(gather what they return, or give the value to each as a default)"
        )


def _meet_again(channel: RankChannel) -> bool:
    try:
        channel.call_collective("gather", 0, b"", None)
    except RankError:  # whoever is gone by now has handed its values over, or the run fails for its reason
        return False
    return True


def _raise_for(lacking: Mapping[str, Mapping[int, str]], ranks: int) -> None:
    """``lacking``: by name and rank, why there is no list."""
    problems = []
    for name, found in lacking.items():
        if set(found.values()) == {_NO_SUCH_NAME} and len(found) == ranks:
            problems.append(f"`{name}` cannot be gathered: the cell makes no such name")
        else:
            problems += [f"rank {rank}'s `{name}` cannot be gathered: {why}" for rank, why in sorted(found.items())]
    if problems:
        is_unknown = all(_NO_SUCH_NAME in found.values() for found in lacking.values())
        hint = "a name that every rank makes" if is_unknown else "what can be pickled (numbers, arrays, tensors, lists)"
        raise CannotSendError("; ".join(problems), hint=f"gather {hint}")


def open_part(part: Part, rank: int, folder: Path) -> tuple[bytes, Sequence[Any]]:
    """The graph that rank ``rank`` offers; raises :class:`ClusterError`."""
    try:
        if part.memory is not None:
            return read_from_memory(part.memory)
        if part.offered is not None:
            return fetch_graph(part.offered)
    except OSError as error:
        hint = "let the cluster's nodes reach each other on all ports, which collectives need as well"
        text = f"rank {rank}'s values cannot be read from its memory: {error}"
        raise ClusterError(text, hint=hint if part.offered is not None else "") from error
    graph = part.graph
    opened = read_graph(graph, folder)
    if graph.file:
        (folder / graph.file).unlink()  # it is mapped, and nobody else's
    return opened
