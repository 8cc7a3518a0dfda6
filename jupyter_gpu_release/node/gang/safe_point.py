"""Agreement on the safe point at which all ranks of a gang are preempted, or saved. Pure.

All hold at their next safe point, and say behind which one they are: the furthest of them may be in a collective that
the others must come to. So all go on until they are behind it as well, and stop at the next one.
"""

from __future__ import annotations

from ..ipc.frames import Command

YIELD, SAVE = "yield", "save"


class SafePointAgreement:
    """One agreement at a time. Each method returns what is to be said to all ranks, if anything."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._word = self._next = ""
        self._places: dict[int, int] = {}

    @property
    def is_open(self) -> bool:
        """Tell if the ranks are to be preempted, and have not all said where they are."""
        return bool(self._word) and len(self._places) < self._ranks

    def ask(self, word: str) -> Command | None:
        """Begin one; a preemption waits for a save that is under way, which is not asked for twice."""
        if self._word:
            self._next = YIELD if YIELD in (word, self._next) and self._word != YIELD else ""
            return None
        self._word, self._places = word, {}
        return Command("hold")

    def on_place(self, rank: int, place: int) -> Command | None:
        """``rank`` waits at the safe point behind ``place``, or on its way to it."""
        if not self._word:
            return None
        self._places[rank] = place
        if len(self._places) < self._ranks:
            return None
        return Command(self._word, place=max(self._places.values()))

    def end(self) -> Command | None:
        """It was done, or refused."""
        word, self._word, self._next = self._next, "", ""
        return self.ask(word) if word else None
