"""Inputs of a run in the background that were changed here while it went on."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from typing import Any

from ...exchange.verdicts import Numbering, compare
from ...protocol.wire import without_gc
from ...serialization.codec import LONGEST_COUNTED_BYTES, LONGEST_NUMBERED, suppressed_warnings
from ...serialization.hashing.fingerprints import Compared, FingerprintReader
from ...serialization.rebuild import NamespaceInfo
from ...serialization.sharing.array_memory import looks_at_memory
from ...serialization.sharing.held_elsewhere import told_apart
from ...store.mapped.mapping import mapping_at
from ...submission.capture import CapturedInputs

_NOT_LOOKED_AT = (type, types.ModuleType, types.FunctionType, str, bytes, int, float, complex, type(None))


class InputsMeanwhile:
    """Made when the run is sent: remembers what its inputs look like."""

    def __init__(self, prepared: CapturedInputs, realm: NamespaceInfo) -> None:
        self._prepared = prepared
        self._realm = realm
        self._maps = {found[0] for view in prepared.buffers if (found := mapping_at(view)) is not None}
        self._objects: dict[int, Any] = {}
        self._numbering: Numbering | None = None
        if len(prepared.stream) <= LONGEST_COUNTED_BYTES:
            self._objects = dict(prepared.memo.values())
            self._numbering = Numbering(told_apart(self._objects), self._objects.__getitem__)
        reader = self._reader()
        with without_gc(), suppressed_warnings():
            self._before = {
                name: reader.read_fingerprint(value)
                for name, value in prepared.originals.items()
                if not issubclass(type(value), _NOT_LOOKED_AT)
            }

    def _reader(self) -> FingerprintReader:
        large = len(self._prepared.stream) > LONGEST_NUMBERED
        return FingerprintReader(self._realm, self._maps, large=large, numbering=self._numbering)

    def changed(self, facts: Mapping[str, Any]) -> tuple[list[str], set[int]]:
        """Names of inputs that were changed here and by the run, and ids of what was changed here.

        ``facts`` of what came back.
        """
        originals, by_run = self._prepared.originals, self._changed_by_run(facts)
        inside = dict[str, set[int]]()
        compared = dict[str, Compared]()
        reader = self._reader()
        with without_gc(), suppressed_warnings():
            for name, before in self._before.items() if by_run else ():
                value = originals[name]
                if before is None or reader.is_same(before, value):
                    continue
                if (found := reader.compare(before, value)) is not None:
                    compared[name] = found
                elif self._is_changed(reader, name):
                    inside[name] = reader.all_of_last() | {id(value)}
        found_here = compare((each.before for each in compared.values()), (each.after for each in compared.values()))
        idents = {
            id(self._objects[number])
            for number in found_here.apart
            if number in found_here.changed or looks_at_memory(self._objects[number])  # of one that was changed
        }
        both = idents & by_run
        for name, found in compared.items():
            reached = {id(thing) for thing in found.things.values()} | {id(originals[name])}
            inside[name] = reached & both
        return [name for name, reached in inside.items() if reached & by_run], idents.union(*inside.values())

    def _changed_by_run(self, facts: Mapping[str, Any]) -> set[int]:
        """Ids of the objects here that the run has changed."""
        originals, memo = self._prepared.originals, self._prepared.memo
        as_before = set(facts.get("as_before", ()))
        wanted = set(facts.get("same", ((), ()))[0]) - as_before
        found = {id(thing) for number, thing in memo.values() if number in wanted} if wanted else set[int]()
        for name in facts.get("inplace", ()):
            if name in originals and memo.get(id(originals[name]), (None,))[0] not in as_before:
                found.add(id(originals[name]))
        return found

    def _is_changed(self, reader: FingerprintReader, name: str) -> bool:
        now = reader.read_fingerprint(self._prepared.originals[name])
        # what looks otherwise each time tells nothing
        return now is None or reader.is_same(now, self._prepared.originals[name])


def changed_sentences(names: Collection[str], run: str) -> list[str]:
    """Sentences for the receipt."""
    return [
        f"`{name}` was changed here meanwhile, and by the run: what you changed stays; "
        f"the run's own: gpu_release.load('{run}')['{name}']"
        for name in names
    ]
