"""``--gather``: values of all ranks come together on rank 0, as lists, before its names go home.

All hand theirs over from memory to memory, so the GPUs are free before anything is written. Only what cannot go that
way (memory for a copy is short, nothing can listen) comes through the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from ..core.messages import INLINE_LIMIT_BYTES, Graph, decode, encode
from ..errors import CannotSendError, ClusterError, RankError
from ..storage import codec
from ..storage.graph_file import open_graph, write_graph
from ..storage.layout import RunPaths
from ..storage.pickler import global_reads
from .far_graph import Offer, Offered, fetch
from .memory_graph import InMemory, put, take
from .rank_channel import RankChannel

_NO_SUCH_NAME = "it has no such name"
#: what all ranks have alike
_THE_SAME = (ModuleType, FunctionType, type)


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one rank has: its values as a graph (or where it lies), and for names that cannot be sent the reason."""

    graph: Graph = Graph()
    memory: InMemory | None = None
    offered: Offered | None = None
    missing: dict[str, str] = msgspec.field(default_factory=dict)


def pack_part(
    names: Sequence[str], namespace: Mapping[str, Any], realm: codec.Realm, paths: RunPaths, rank: int, address: str,
    held: contextlib.ExitStack,
) -> Part:  # fmt: skip
    """This rank's values. Large ones stay in its memory, for as long as ``held`` does.

    ``address``: of this node, for rank 0 on another one; "" on rank 0's own.
    """
    missing = {name: _NO_SUCH_NAME for name in names if name not in namespace}
    dump = codec.dump({name: namespace[name] for name in names if name not in missing}, realm)
    missing |= {name: f"{type(error).__name__}: {error}" for name, error in dump.failed.items()}
    if dump.total_bytes <= INLINE_LIMIT_BYTES:
        return Part(Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers]), missing=missing)
    with contextlib.suppress(OSError):
        if not address:
            return Part(memory=put(dump.stream, dump.buffers), missing=missing)
        offer = held.enter_context(Offer(dump.stream, dump.buffers, address))
        return Part(offered=offer.offered, missing=missing)
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
    address: str,
) -> list[str]:
    """Send this rank's values; on rank 0 wait for the others' and bind each name to the list of all.

    Returns notes for the receipt. Raises :class:`CannotSendError` naming rank and name, on rank 0, for what could not
    be sent; the other names are bound all the same. Raises :class:`RankError` when a rank has ended without sending,
    :class:`ClusterError` when what one has does not reach rank 0.
    """
    with contextlib.ExitStack() as held:
        part = Part() if rank == 0 else pack_part(names, namespace, realm, paths, rank, address, held)
        reply = channel.meet("gather", 0, encode(part), None)
        parts = [decode(data, Part) for data in reply.parts]
        problem = None
        try:
            opened = [_open(part, number, paths) for number, part in enumerate(parts) if number]
        except ClusterError as error:
            problem = error
        finally:
            all_there = _meet_again(channel)  # what lies in another rank's memory ends with that one
        if problem is not None:
            raise problem if all_there else RankError(problem.message)
    if rank:
        return []
    loaded = [dict(codec.load(stream, buffers, realm).values) for stream, buffers in opened]
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
        read for read in global_reads(function.__code__)
        if read in namespace and not isinstance(namespace[read], _THE_SAME)
    ]  # fmt: skip
    if reads:
        named = ", ".join(f"`{read}`" for read in reads)
        yield (
            f"`{name}` are functions that read {named}: in the notebook all of them read rank 0's "
            "(gather what they return, or give the value to each as a default)"
        )


def _meet_again(channel: RankChannel) -> bool:
    try:
        channel.meet("gather", 0, b"", None)
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
        mend = "a name that every rank makes" if is_unknown else "what can be pickled (numbers, arrays, tensors, lists)"
        raise CannotSendError("; ".join(problems), mend=f"gather {mend}")


def _open(part: Part, rank: int, paths: RunPaths) -> tuple[bytes, Sequence[Any]]:
    try:
        if part.memory is not None:
            return take(part.memory)
        if part.offered is not None:
            return fetch(part.offered)
    except OSError as error:
        mend = "let the cluster's nodes reach each other on all ports, which collectives need as well"
        text = f"rank {rank}'s values cannot be read from its memory: {error}"
        raise ClusterError(text, mend=mend if part.offered is not None else "") from error
    graph = part.graph
    if not graph.file:
        return graph.stream, [bytearray(buffer) for buffer in graph.buffers]
    if Path(graph.file).name != graph.file:
        raise RankError(f"{graph.file!r} is no file name of a run folder")
    opened = open_graph(paths.folder / graph.file, graph.digest)
    (paths.folder / graph.file).unlink()  # it is mapped, and nobody else's
    return opened
