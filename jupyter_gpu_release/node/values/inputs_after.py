"""Inputs after the cell, object by object: what it changed, and what is the notebook's own still."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...exchange.verdicts import Verdicts, compare
from ...serialization.hashing.fingerprints import Compared, Fingerprint, FingerprintReader
from ...serialization.sharing.in_place import stands_alone
from ...serialization.sharing.references import KnownInputs

#: of further objects that an input had, for each of which there has to be looked
_MOST_JUDGED = 2_000


@dataclass
class InputsAfter:
    """``compared``: inputs that look otherwise now, by name; ``things``: the notebook's objects in them, by number.

    ``before``: what all inputs looked like.
    """

    compared: Mapping[str, Compared]
    verdicts: Verdicts
    things: dict[int, Any]
    before: Collection[Fingerprint]
    #: names of inputs that go home
    changed: set[str] = field(default_factory=set)
    #: what results refer to
    known: KnownInputs | None = None

    @classmethod
    def of(
        cls, compared: Mapping[str, Compared], before: Collection[Fingerprint], reader: FingerprintReader
    ) -> InputsAfter:
        """Compare these."""
        found = compared.values()
        things = {number: thing for each in found for number, thing in each.things.items()}
        then = [each.before for each in found]
        if not things.keys() <= {number for heap in then for number in heap.states}:  # some were in another input
            then += filter(None, map(reader.read_then, before))
        alone = (number for number, thing in things.items() if not stands_alone(thing))
        return cls(compared, compare(then, (each.after for each in found), also_apart=alone), things, before)

    @property
    def whole(self) -> dict[int, Any]:
        """Objects that are as they were, with all that they lead to."""
        apart = self.verdicts.apart
        return {number: thing for number, thing in self.things.items() if number not in apart}

    def is_changed(self, name: str) -> bool:
        """Tell if the cell changed anything to which this name leads."""
        was, now = self.compared[name].before.root, self.compared[name].after.root
        is_same = was is not None and now is not None and was.equals(now)
        return not is_same or bool(now and self.verdicts.apart & now.parts)

    def parts_written(self, is_written: Callable[[Any], bool]) -> dict[int, Any]:
        """Those of the notebook's objects that went home by their content."""
        apart = self.verdicts.apart
        return {
            number: thing
            for number, thing in self.things.items()
            if number in apart and not isinstance(thing, type) and is_written(thing)
        }

    def as_before(self, pairs: dict[int, Any], reader: FingerprintReader, *, deep: bool = False) -> list[int]:
        """Numbers of those among ``pairs`` whose own state is what it was; ``deep``: and all that they lead to.

        Adds to ``pairs`` what they lead to and is otherwise now.
        """
        verdicts = self.verdicts
        found = [number for number in pairs if number in verdicts.kept and number not in verdicts.changed]
        if deep:
            found = [number for number in found if number not in verdicts.apart]
        others = {number: thing for number, thing in pairs.items() if number not in verdicts.kept}
        if not others or len(others) > _MOST_JUDGED or (now := reader.read_now([*others.values()])) is None:
            return found
        heap, things = now
        judged = compare(filter(None, map(reader.read_then, self.before)), [heap])
        if deep:
            return [*found, *(others.keys() & judged.kept - judged.apart)]
        within = {
            number: thing
            for number, thing in things.items()
            if number in judged.apart and number not in pairs and not isinstance(thing, type)
        }
        pairs.update(within)
        return [*found, *((others.keys() | within.keys()) & judged.kept - judged.changed)]
