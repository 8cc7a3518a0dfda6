"""A word from the supervisor that the rank looks at between two rounds: a page of memory that both have.

Its first byte says that there is something to look at: an undisturbed cell reads no more of it in a round. A frame
would need a thread of the rank's to read it, or a call of the system in each round.

Ranks of a gang stop at the same safe point. A rank that has come to one may not wait for the others to answer: they
may be in a collective, and wait for it. So each writes down where it is, and its supervisor reads that. Told to hold,
it waits at its next safe point for the few milliseconds until the gang's leader has heard from all supervisors, and
says behind which place all of them stop.

Neither waits for the other to have written. So a word and its place are one number, written at once, and what the
supervisor reads of the rank it reads in the order in which that can be believed.
"""

from __future__ import annotations

import mmap
import time
from enum import IntEnum
from time import sleep
from typing import Protocol

#: the page's numbers, of 8 bytes each
_LOOK, _ASKED, _HOLDS, _COMES_TO, _IS_BEHIND = range(5)
#: of the number ``_ASKED``: the lowest bits are the word, the others the place
_WORD_BITS, _WORD = 2, 3
_LOOK_S = 0.0005
#: a rank is between its two notes for microseconds; one that was stopped there counts as behind the second
_LONGEST_BETWEEN_S = 0.1


class Word(IntEnum):
    """A word to the rank."""

    NOTHING = 0
    #: save, and end (of a gang: behind the place)
    PREEMPT = 1
    HOLD = 2
    #: save, and go on, behind the place
    SAVE = 3


class Flag(Protocol):
    """Numbers that others may change."""

    def __getitem__(self, index: int, /) -> int:
        """The number there."""


class Notice:
    """Made before the rank is forked. Places are numbers below 2 ** 62."""

    def __init__(self) -> None:
        self._page = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        #: what a rank of a gang was asked last, and has answered: the word is its supervisor's alone
        self._answered = 0

    # ------------------------------------------------------------------------------ the rank's side
    @property
    def page(self) -> Flag:
        """Its first number is not 0 when the rank is to look up at its next safe point."""
        return self._page

    def look_up(self) -> None:
        """Have the rank do so."""
        self._page[_LOOK] = 1

    def look_down(self) -> None:
        """It does, before it reads the word."""
        self._page[_LOOK] = 0

    @property
    def word(self) -> Word:
        """The word that stands there now."""
        return Word(self._page[_ASKED] & _WORD)

    def take_back(self) -> None:
        """The rank stays."""
        self._page[_ASKED] = 0

    def ask_at(self, place: int) -> Word:
        """Tell what a rank of a gang is asked at this safe point: ``PREEMPT``, ``SAVE``, or ``NOTHING``: then it is
        behind it. Waits while the others are asked where they are.
        """
        page = self._page
        page[_COMES_TO] = place
        asked = page[_ASKED]
        if asked & _WORD == Word.HOLD:
            page[_HOLDS] = 1
            while (asked := page[_ASKED]) & _WORD == Word.HOLD:
                sleep(_LOOK_S)
            page[_HOLDS] = 0
        if asked and asked != self._answered and place > asked >> _WORD_BITS:
            self._answered = asked
            return Word(asked & _WORD)
        page[_IS_BEHIND] = place
        return Word.NOTHING

    def go_behind(self, place: int) -> None:
        """The rank of a gang goes on from a safe point at which it was asked something."""
        self._page[_IS_BEHIND] = place

    # ------------------------------------------------------------------------ the supervisor's side
    def give(self, word: Word = Word.PREEMPT, place: int = 0) -> None:
        """Ask the rank to do this at its next safe point behind ``place``."""
        self._page[_ASKED] = place << _WORD_BITS | word
        self.look_up()

    def place_of_rank(self) -> int:
        """The safe point that a rank is behind which was asked to hold: at the next one it waits."""
        deadline = time.monotonic() + _LONGEST_BETWEEN_S
        while True:
            sleep(_LOOK_S)  # until then each process sees what the other has written
            holds = self._page[_HOLDS]  # once it does, the numbers below stay
            behind = self._page[_IS_BEHIND]
            comes_to = self._page[_COMES_TO]
            if holds or behind == comes_to:
                return behind
            if time.monotonic() > deadline:
                return comes_to
