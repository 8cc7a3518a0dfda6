"""Memory of a part of a GPU: whose it is, what is warned of, and what ends it."""

from __future__ import annotations

import os

from jupyter_gpu_release.node.agent.part_use import INTERRUPT, OVER_S, WARN, PartUse

_GIB = 1 << 30
_OWN, _OTHERS = os.getpid(), os.getppid()


def _part(limit: int = 4 * _GIB) -> PartUse:
    return PartUse(limit, lambda: {_OWN})


def test_more_than_its_part_is_warned_of_then_ended_and_told() -> None:
    part, too_much = _part(), {_OWN: 5 * _GIB}
    assert part.look({_OWN: 3 * _GIB}, 0.0) == ""
    assert part.look(too_much, 1.0) == WARN
    assert "uses 5 GiB of the GPU, and its part has 4 GiB" in part.warning()
    assert part.look(too_much, 1.0 + OVER_S / 2) == ""
    assert part.look(too_much, 1.0 + OVER_S) == INTERRUPT
    assert part.look(too_much, 9.0) == ""
    assert part.notes() == ["interrupted: it used 5 GiB of the GPU for 3 s, and its part has 4 GiB: --gpus 1 has all"]


def test_it_is_not_ended_for_what_it_has_given_back_or_what_others_use() -> None:
    part = _part()
    assert part.look({_OWN: 5 * _GIB}, 0.0) == WARN
    assert part.look({_OWN: 2 * _GIB, _OTHERS: 70 * _GIB}, OVER_S) == ""
    assert part.look({_OWN: 5 * _GIB}, OVER_S + 1) == "", "it was warned"
    assert part.notes() == []


def test_giving_some_back_for_a_moment_does_not_help() -> None:
    part = _part()
    said = [part.look({_OWN: (3 if second % 3 == 2 else 5) * _GIB}, float(second)) for second in range(12)]
    assert [word for word in said if word] == [WARN, INTERRUPT]


def test_a_part_is_clear_when_its_own_processes_are_gone() -> None:
    part = _part()
    part.look({_OWN: _GIB, _OTHERS: 9 * _GIB}, 0.0)
    part.look({}, 1.0)  # a driver that does not answer just then
    assert part.left_bytes({_OWN: _GIB, _OTHERS: 9 * _GIB}) == _GIB
    assert part.left_bytes({_OTHERS: 20 * _GIB}) == 0
    assert part.peak_bytes == _GIB


def test_where_process_numbers_are_hidden_it_is_said() -> None:
    part = _part()
    part.look({4_194_305: 9 * _GIB}, 0.0)  # above the largest number that there is
    assert "not enforced" in part.notes()[0]


def test_where_the_driver_lists_no_process_at_all_it_is_said_once_somebody_has_memory() -> None:
    part = _part()
    part.look({}, 0.0, 10 << 20)
    assert part.notes() == []
    for at_s in (1.0, 2.0):
        part.look({}, at_s, 9 * _GIB)
    (note,) = part.notes()
    assert "not enforced" in note


def test_what_cuda_takes_beside_the_librarys_limit_is_none_of_its_part() -> None:
    part = _part()
    assert [part.look({_OWN: 4 * _GIB + (400 << 20)}, at_s) for at_s in (0.0, 9.0)] == ["", ""]
    assert part.look({_OWN: 4 * _GIB + (600 << 20)}, 10.0) == WARN
