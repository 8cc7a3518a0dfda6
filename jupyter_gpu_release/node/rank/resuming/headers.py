"""Headers of loops that are evaluated again: their names and random states are set to what they were the first time."""

from __future__ import annotations

import sys
from typing import Any

from ....serialization import codec
from ....serialization.load_order import global_reads
from ....serialization.rebuild import NamespaceInfo
from ....serialization.sharing.replace import ReferenceReplacer
from ....unpickling import Trust
from . import random_state
from .cell_program import LoopNode
from .places import FirstLook, is_made_again, is_without_effect

#: what a loop's header reads is copied up to this
_COPIED_BYTES = 1 << 20


class Headers:
    """Of the cell whose names are in ``namespace``."""

    def __init__(self, namespace: dict[str, Any], realm: NamespaceInfo) -> None:
        self._namespace = namespace
        self._realm = realm
        #: generators of random numbers that the header draws from once more, and their states now
        self._lent: list[tuple[Any, Any]] = []

    def look(self, node: LoopNode) -> FirstLook | None:
        """How things are before it is evaluated; None: it is not evaluated again.

        It is if its code says so (``resumable``), or if it reads what gives the same again.
        """
        names = {name: self._namespace[name] for name in node.header_names if name in self._namespace}
        is_known = "DataLoader" in node.called or any(map(is_made_again, names.values()))
        if not any(_is_resumable(name, names.get(name)) for name in node.called) and not (
            is_known and all(map(is_without_effect, names.values()))
        ):
            return None
        dump, own = self._with_reads(names), names.keys() - node.bound_around  # those are bound anew
        lost = [f"`{name}` of the loop's header: {error}" for name, error in dump.failed.items() if name in own]
        generators = [found for found in dump.memo.values() if random_state.is_generator(found[1])]
        return {
            "rng": random_state.capture(),
            "stream": dump.stream,
            "buffers": [_kept(buffer) for buffer in dump.buffers],
            "lost": lost,
            "generators": generators,
        }

    def _with_reads(self, names: dict[str, Any]) -> codec.Dump:
        """These names, and those that their functions read."""
        while True:
            dump = codec.dump(names, self._realm)
            reads = {name for code in dump.codes for name in global_reads(code)} - names.keys()
            more = {name: self._namespace[name] for name in reads if name in self._namespace}
            if not more:
                return dump
            names |= more

    def begin_again(self, first: FirstLook) -> dict[str, Any]:
        """Have things as they were; returns the names as they are now."""
        loaded = codec.load(first["stream"], first["buffers"], self._realm, trust=Trust.OWN)
        now = {name: self._namespace[name] for name in loaded.values if name in self._namespace}
        self._namespace.update(self._with_own_generators(loaded, first["generators"]))
        random_state.restore(first["rng"])
        return now

    def _with_own_generators(self, loaded: codec.Loaded, generators: list[tuple[int, Any]]) -> dict[str, Any]:
        """The values, with the cell's own generators in their first states: so there are no two of one kind."""
        pairs = [(loaded.memo[number], own) for number, own in generators]
        replaced = {id(copy): (copy, own) for copy, own in pairs}
        self._lent = [(own, random_state.state_of(own)) for _, own in pairs]  # some are parts of others
        for copy, own in pairs:
            random_state.set_state(own, random_state.state_of(copy))
        if replaced:
            exchange = ReferenceReplacer(replaced)
            exchange.replace_inside(loaded.values.values())
            exchange.replace_in_names(loaded.values)
        return loaded.values

    def end_again(self) -> None:
        """The header was evaluated: generators are as the save has them."""
        for generator, state in self._lent:
            random_state.set_state(generator, state)
        self._lent.clear()


def _kept(buffer: memoryview) -> Any:
    """A copy, as it is now; of much (a data set) only a view of what it will be."""
    numpy = sys.modules.get("numpy")
    if buffer.nbytes <= _COPIED_BYTES or numpy is None:
        return bytes(buffer)
    return numpy.frombuffer(buffer, "u1")


def _is_resumable(name: str, value: Any) -> bool:
    return name == "resumable" or getattr(value, "__qualname__", "") == "resumable"
