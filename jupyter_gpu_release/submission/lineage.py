"""Records of which run made which object of the notebook: they link a run to those whose results it uses."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from blake3 import blake3

from ..protocol.lineage import UsedInput
from ..protocol.runs import ValueInfo
from ..serialization.codec import Dump

#: a name of more bytes gets its digest from its blobs, once they are written (:func:`with_large_digests`)
_MOST_DIGESTED_BYTES = 1 << 20
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class ResultLineage:
    """Remembers results by identity, without keeping them alive.

    What takes no weak reference (a list, a dict) is known by its name, its id and its length: ``x = load()`` under
    the same name is another object.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[weakref.ref[Any], str]] = {}
        #: name → (what tells that it is the same object still, run)
        self._by_name: dict[str, tuple[tuple[Any, ...], str]] = {}

    def note_results(self, run: str, names: Iterable[str], namespace: Mapping[str, Any]) -> None:
        """Note that these names were bound to results of ``run``."""
        for name in names:
            if name not in namespace:
                continue
            value = namespace[name]
            try:
                self._by_id[id(value)] = weakref.ref(value, self._forget), run
            except TypeError:
                self._by_name[name] = _look(value), run
            else:
                self._by_name.pop(name, None)

    def _forget(self, dead: weakref.ref[Any]) -> None:
        for ident, (reference, _) in list(self._by_id.items()):
            if reference is dead:
                del self._by_id[ident]

    def run_of(self, name: str, value: Any) -> str:
        """The run that made the object which ``name`` holds; empty when none is known."""
        known = self._by_id.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        look, run = self._by_name.get(name, ((), ""))
        return run if look == _look(value) else ""


def _look(value: Any) -> tuple[Any, ...]:
    if isinstance(value, _PLAIN):
        return type(value), value
    length = len(value) if isinstance(value, list | tuple | dict | set | frozenset) else -1
    return type(value), id(value), length


class SentGraph(Protocol):
    """A written graph, and where in it each name is."""

    stream: bytes
    buffers: list[memoryview]
    spans: dict[str, tuple[int, int, int, int]]


def used_inputs(
    sent: Sequence[ValueInfo], dump: Dump, lineage: ResultLineage, values: Mapping[str, Any]
) -> list[UsedInput]:
    """The inputs that are sent, and where they came from; with digests of those that are small."""
    return [
        UsedInput(info.name, info.type, info.bytes, lineage.run_of(info.name, values[info.name]), _digest(info, dump))
        for info in sent
    ]


def with_large_digests(used: Sequence[UsedInput], dump: SentGraph, blobs: Sequence[str]) -> list[UsedInput]:
    """Digests of what was too large to be hashed: of its stream and of the digests that its buffers' blobs have."""
    return [
        each if each.digest else msgspec.structs.replace(each, digest=_by_blobs(each, dump, blobs)) for each in used
    ]


def _by_blobs(used: UsedInput, dump: SentGraph, blobs: Sequence[str]) -> str:
    if used.name not in dump.spans:
        return ""
    start, end, first, last = dump.spans[used.name]
    digest = blake3(memoryview(dump.stream)[start:end])
    for number in range(first, last):
        digest.update(blobs[number].encode() or dump.buffers[number])
    return f"blobs:{digest.hexdigest()}"


def _digest(info: ValueInfo, dump: Dump) -> str:
    """Digest of the bytes as they are sent."""
    if info.bytes > _MOST_DIGESTED_BYTES:
        return ""
    start, end, first, last = dump.spans[info.name]
    digest = blake3(memoryview(dump.stream)[start:end])
    for buffer in dump.buffers[first:last]:
        digest.update(buffer)
    return f"sent:{digest.hexdigest()}"
