"""Ranks agree on the safe point at which they stop: behind the furthest one, which nobody passes meanwhile."""

from __future__ import annotations

import threading

from jupyter_gpu_release.node.gang.safe_point import SAVE, YIELD, SafePointAgreement
from jupyter_gpu_release.node.ipc.frames import Command
from jupyter_gpu_release.node.ipc.notice import Notice, Word


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
