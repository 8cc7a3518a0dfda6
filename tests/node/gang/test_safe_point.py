"""Ranks agree on the safe point at which they stop: behind the furthest one, which nobody passes meanwhile."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from typing import Any

from jupyter_gpu_release.node.gang.safe_point import SAVE, YIELD, SafePointAgreement
from jupyter_gpu_release.node.ipc.frames import Command
from jupyter_gpu_release.node.ipc.notice import _COMES_TO, _HOLDS, _IS_BEHIND, Notice, Word


def test_all_stop_behind_the_furthest() -> None:
    agreement = SafePointAgreement(3)
    assert agreement.ask(YIELD) == Command("hold")
    assert agreement.ask(YIELD) is None
    assert [agreement.on_place(rank, place) for rank, place in ((0, 4), (2, 5))] == [None, None]
    assert agreement.is_open
    assert agreement.on_place(1, 4) == Command(YIELD, place=5)
    assert not agreement.is_open
    assert agreement.end() is None


def test_who_is_to_step_aside_while_it_is_saved_does_so_afterwards() -> None:
    agreement = SafePointAgreement(1)
    assert agreement.ask(SAVE) == Command("hold")
    assert agreement.ask(YIELD) is None
    assert agreement.on_place(0, 7) == Command(SAVE, place=7)
    assert agreement.end() == Command("hold")
    assert agreement.on_place(0, 8) == Command(YIELD, place=8)
    assert agreement.end() is None
    assert agreement.on_place(0, 9) is None


def test_a_rank_that_is_told_to_hold_does_not_pass_its_next_safe_point() -> None:
    notice = Notice()
    assert notice.ask_at(1) is Word.NOTHING
    notice.give(Word.HOLD)
    assert notice.place_of_rank() == 1
    answers: list[Word] = []
    rank = threading.Thread(target=lambda: answers.extend(notice.ask_at(place) for place in (2, 3)))
    rank.start()
    assert notice.place_of_rank() == 1
    notice.give(Word.PREEMPT, 2)
    rank.join()
    assert answers == [Word.NOTHING, Word.PREEMPT]


def test_what_a_rank_has_answered_it_is_not_asked_again() -> None:
    notice = Notice()
    notice.give(Word.SAVE, 0)
    assert notice.ask_at(1) is Word.SAVE
    notice.go_behind(1)
    assert notice.ask_at(2) is Word.NOTHING
    notice.give(Word.PREEMPT, 2)
    assert [notice.ask_at(place) for place in (2, 3)] == [Word.NOTHING, Word.PREEMPT]


class _PageOfAFastRank(list[int]):
    """A page whose rank comes to its next safe point, and holds there, just when it is first looked at."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if index == _IS_BEHIND:
            self[_HOLDS], self[_COMES_TO], self[_IS_BEHIND] = 1, 3, 2
        return found


def test_a_rank_that_comes_to_hold_while_it_is_looked_at_is_behind_its_last_point() -> None:
    notice = Notice()
    page = _PageOfAFastRank([0] * 5)
    page[_COMES_TO] = 2
    page[_IS_BEHIND] = 1
    notice._page = page  # type: ignore[assignment]
    assert notice.place_of_rank() == 2


def test_a_rank_at_its_rounds_never_takes_half_of_a_new_word() -> None:
    notice, meetings = Notice(), multiprocessing.get_context("fork").SimpleQueue()
    rank = multiprocessing.get_context("fork").Process(target=_run_rounds, args=(notice, meetings))
    rank.start()
    try:
        for _ in range(300):
            notice.give(Word.HOLD)
            assert meetings.empty(), "it saves where none was to"
            stop = notice.place_of_rank() + 3  # as far as another rank has come
            notice.give(Word.SAVE, stop)
            assert meetings.get() == stop + 1
    finally:
        rank.kill()
        rank.join()


def _run_rounds(notice: Notice, meetings: Any) -> None:
    for place in itertools.count(1):
        if notice.ask_at(place) is Word.SAVE:
            meetings.put(place)
            notice.go_behind(place)
