"""``--gather``: values of all ranks come together on rank 0, as lists, before its names go home.

Ranks on rank 0's node hand theirs over in memory, so the GPUs are free before anything is written; large values of
other nodes' ranks come through the store, which is what all nodes have in common.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..core.messages import INLINE_LIMIT_BYTES, Graph, decode, encode
from ..errors import CannotSendError, RankError
from ..storage import codec
from ..storage.graph_file import open_graph, write_graph
from ..storage.layout import RunPaths
from .memory_graph import InMemory, put, take
from .rank_channel import RankChannel


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one rank has: its values as a graph (or where it lies), and for names that cannot be sent the reason."""

    graph: Graph = Graph()
    memory: InMemory | None = None
    missing: dict[str, str] = msgspec.field(default_factory=dict)


def pack_part(
    names: Sequence[str], namespace: Mapping[str, Any], realm: codec.Realm, paths: RunPaths, rank: int, *, near: bool
) -> Part:
    """This rank's values. Large ones stay in memory (``near``: on rank 0's node), or go into the run's folder."""
    missing = {name: "it has no such name" for name in names if name not in namespace}
    dump = codec.dump({name: namespace[name] for name in names if name not in missing}, realm)
    missing |= {name: f"{type(error).__name__}: {error}" for name, error in dump.failed.items()}
    if dump.total_bytes <= INLINE_LIMIT_BYTES:
        return Part(Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers]), missing=missing)
    if near:
        with contextlib.suppress(OSError):  # too little memory for a copy
            return Part(memory=put(dump.stream, dump.buffers), missing=missing)
    file = f"gather-{rank}.graph"
    digest = write_graph(paths.folder / file, dump.stream, dump.buffers)
    return Part(Graph(file=file, digest=digest), missing=missing)


def gather(
    names: Sequence[str],
    namespace: dict[str, Any],
    realm: codec.Realm,
    paths: RunPaths,
    channel: RankChannel,
    rank: int,
    *,
    near: bool,
) -> None:
    """Send this rank's values; on rank 0 wait for the others' and bind each name to the list of all.

    Raises :class:`CannotSendError` naming rank and name, on rank 0, for what could not be sent; the other names are
    bound all the same. Raises :class:`RankError` when a rank has ended without sending.
    """
    part = Part() if rank == 0 else pack_part(names, namespace, realm, paths, rank, near=near)
    reply = channel.meet("gather", 0, encode(part), None)
    parts = [decode(data, Part) for data in reply.parts]
    try:
        opened = [_open(part, number, paths) for number, part in enumerate(parts) if number]
    finally:
        with contextlib.suppress(RankError):  # whoever is gone by now has handed its values over
            channel.meet("gather", 0, b"", None)  # what lies in another rank's memory ends with that one
    if rank:
        return
    loaded = [dict(codec.load(stream, buffers, realm).values) for stream, buffers in opened]
    problems = []
    for name in names:
        lacking = {number: part.missing[name] for number, part in enumerate(parts) if name in part.missing}
        if name not in namespace:
            lacking[0] = "it has no such name"
        problems += [f"rank {number}'s `{name}` cannot be gathered: {why}" for number, why in sorted(lacking.items())]
        if not lacking:
            namespace[name] = [namespace[name], *(values[name] for values in loaded)]
    if problems:
        raise CannotSendError("; ".join(problems), mend="gather what can be pickled (numbers, arrays, tensors, lists)")


def _open(part: Part, rank: int, paths: RunPaths) -> tuple[bytes, Sequence[Any]]:
    if part.memory is not None:
        try:
            return take(part.memory)
        except OSError as error:
            raise RankError(f"rank {rank}'s values cannot be read from its memory: {error}") from error
    graph = part.graph
    if not graph.file:
        return graph.stream, [bytearray(buffer) for buffer in graph.buffers]
    if Path(graph.file).name != graph.file:
        raise RankError(f"{graph.file!r} is no file name of a run folder")
    opened = open_graph(paths.folder / graph.file, graph.digest)
    (paths.folder / graph.file).unlink()  # it is mapped, and nobody else's
    return opened
