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

_NO_SUCH_NAME = "it has no such name"


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one rank has: its values as a graph (or where it lies), and for names that cannot be sent the reason."""

    graph: Graph = Graph()
    memory: InMemory | None = None
    missing: dict[str, str] = msgspec.field(default_factory=dict)


def pack_part(
    names: Sequence[str], namespace: Mapping[str, Any], realm: codec.Realm, paths: RunPaths, rank: int, *, near: bool
) -> Part:
    """This rank's values. Large ones stay in memory (``near``: on rank 0's node), or go into the run's folder."""
    missing = {name: _NO_SUCH_NAME for name in names if name not in namespace}
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
    lacking = {name: {n: part.missing[name] for n, part in enumerate(parts) if name in part.missing} for name in names}
    for name in names:
        if name not in namespace:
            lacking[name][0] = _NO_SUCH_NAME
        if not lacking[name]:
            namespace[name] = [namespace[name], *(values[name] for values in loaded)]
    _raise_for({name: found for name, found in lacking.items() if found}, len(parts))


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
        mend = "a name that every rank makes" if is_unknown else "what can be pickled (numbers, arrays, tensors, lists)"
        raise CannotSendError("; ".join(problems), mend=f"gather {mend}")


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
