"""``--gather``: values of all ranks come together on rank 0, as lists, before its names go home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..core.messages import INLINE_LIMIT_BYTES, Graph, decode, encode
from ..errors import CannotSendError, RankError
from ..storage import codec
from ..storage.graph_file import open_graph, write_graph
from ..storage.layout import RunPaths
from .rank_channel import RankChannel


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one rank has: its values as a graph, and for names that cannot be sent the reason."""

    graph: Graph = Graph()
    missing: dict[str, str] = msgspec.field(default_factory=dict)


def pack_part(
    names: Sequence[str], namespace: Mapping[str, Any], realm: codec.Realm, paths: RunPaths, rank: int
) -> Part:
    """This rank's values; large ones go into a file of the run's folder."""
    missing = {name: "it has no such name" for name in names if name not in namespace}
    dump = codec.dump({name: namespace[name] for name in names if name not in missing}, realm)
    missing |= {name: f"{type(error).__name__}: {error}" for name, error in dump.failed.items()}
    if dump.total_bytes <= INLINE_LIMIT_BYTES:
        return Part(Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers]), missing)
    file = f"gather-{rank}.graph"
    digest = write_graph(paths.folder / file, dump.stream, dump.buffers)
    return Part(Graph(file=file, digest=digest), missing)


def gather(
    names: Sequence[str],
    namespace: dict[str, Any],
    realm: codec.Realm,
    paths: RunPaths,
    channel: RankChannel,
    rank: int,
) -> None:
    """Send this rank's values; on rank 0 wait for the others' and bind each name to the list of all.

    Raises :class:`CannotSendError` naming rank and name, on rank 0, for what could not be sent; the other names are
    bound all the same. Raises :class:`RankError` when a rank has ended without sending.
    """
    part = Part() if rank == 0 else pack_part(names, namespace, realm, paths, rank)
    reply = channel.meet("gather", 0, encode(part), None)
    if rank:
        return
    parts = [decode(data, Part) for data in reply.parts]
    loaded = [_load(part.graph, realm, paths) for part in parts[1:]]
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


def _load(graph: Graph, realm: codec.Realm, paths: RunPaths) -> dict[str, Any]:
    if not graph.file:
        return dict(codec.load(graph.stream, [bytearray(buffer) for buffer in graph.buffers], realm).values)
    if Path(graph.file).name != graph.file:
        raise RankError(f"{graph.file!r} is no file name of a run folder")
    opened = open_graph(paths.folder / graph.file, graph.digest)
    return dict(codec.load(opened.stream, list(opened.buffers), realm).values)
