"""``AttemptId``: the identity of a run's processes, in all that gateway and nodes say to each other of them."""

from __future__ import annotations

import msgspec

#: protocol between gateway and agents, as :class:`.NodeInfo` states it. 1: calls and messages name the attempt
AGENT_PROTOCOL = 1


class AttemptId(msgspec.Struct, frozen=True, array_like=True):
    """One try at a run. ``attempt``: how often the run was begun before; 0 is the first."""

    run: str
    attempt: int

    def __str__(self) -> str:
        """Return a name for files, folders and placement groups: the run's id, of a later attempt with its number."""
        return f"{self.run}.{self.attempt}" if self.attempt else self.run

    @classmethod
    def named(cls, name: str) -> AttemptId:
        """The attempt whose ``str`` this is."""
        run, _, attempt = name.partition(".")
        return cls(run, int(attempt) if attempt.isdecimal() else 0)

    def is_before(self, other: AttemptId) -> bool:
        """Tell if it is an older attempt of the same run."""
        return self.run == other.run and self.attempt < other.attempt
