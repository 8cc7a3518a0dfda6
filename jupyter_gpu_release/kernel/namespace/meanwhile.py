"""Inputs of a run in the background that were changed here while it went on."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from typing import Any

from ...protocol.wire import without_gc
from ...serialization.codec import LONGEST_NUMBERED, suppressed_warnings
from ...serialization.hashing.fingerprints import FingerprintReader
from ...serialization.rebuild import NamespaceInfo
from ...store.mapped.mapping import mapping_at
from ...submission.capture import CapturedInputs

_NOT_LOOKED_AT = (type, types.ModuleType, types.FunctionType, str, bytes, int, float, complex, type(None))


class InputsMeanwhile:
    """Made when the run is sent: remembers what its inputs look like."""

    def __init__(self, prepared: CapturedInputs, realm: NamespaceInfo) -> None:
        self._prepared = prepared
        self._realm = realm
        self._maps = {found[0] for view in prepared.buffers if (found := mapping_at(view)) is not None}
        reader = self._reader()
        with without_gc(), suppressed_warnings():
            self._before = {
                name: reader.read_fingerprint(value)
                for name, value in prepared.originals.items()
                if not issubclass(type(value), _NOT_LOOKED_AT)
            }

    def _reader(self) -> FingerprintReader:
        return FingerprintReader(self._realm, self._maps, large=len(self._prepared.stream) > LONGEST_NUMBERED)

    def changed(self, facts: Mapping[str, Any]) -> tuple[list[str], set[int]]:
        """Names of inputs that were changed here, and of which the run changed something; ids of all that is in them.

        ``facts`` of what came back.
        """
        originals, numbers = self._prepared.originals, facts.get("same", ((), ()))[0]
        by_number = dict(self._prepared.memo.values()) if numbers else {}
        written = [originals[name] for name in facts.get("inplace", ()) if name in originals]
        wanted = {id(thing) for thing in (*written, *(by_number[n] for n in numbers if n in by_number))}
        names, inside = list[str](), set[int]()
        reader = self._reader()
        with without_gc(), suppressed_warnings():
            for name in self._before if wanted else ():
                if self._is_changed(reader, name):
                    found = reader.all_of_last() | {id(self._prepared.originals[name])}
                    names += [name] if found & wanted else []
                    inside |= found
        return names, inside

    def _is_changed(self, reader: FingerprintReader, name: str) -> bool:
        before, value = self._before[name], self._prepared.originals[name]
        if before is None or reader.is_same(before, value):
            return False
        now = reader.read_fingerprint(value)
        return now is None or reader.is_same(now, value)  # what looks otherwise each time tells nothing


def changed_sentences(names: Collection[str], run: str) -> list[str]:
    """Sentences for the receipt."""
    return [
        f"`{name}` was changed here meanwhile, and by the run: what is here stays; "
        f"the run's own: gpu_release.load('{run}')['{name}']"
        for name in names
    ]
