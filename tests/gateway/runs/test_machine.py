"""The machine of a run's life: in virtual time, whatever happens, no GPU has two attempts, and each run ends once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_world import World
from soak import sized

#: actions, some more often than others
_ACTIONS = [
    *[World.submit] * 3,
    *[World.settle] * 5,
    *[World.go_on] * 3,
    *[World.deliver] * 2,
    *[World.work] * 4,
    *[World.look] * 4,
    *[World.pass_grace] * 2,
    *[World.come_back] * 3,
    World.cancel,
    World.preempt,
    World.kill_rank,
    World.kill_agent,
    *[World.refuse] * 2,
    *[World.begin_and_die] * 2,
    World.fall_silent,
    World.commit,
    World.restart,
]

#: histories that a search has found once
_FOUND = {
    "the gateway dies twice before its ledger has caught up": (
        "submit 0, cancel 0, look 0, settle 0, work 0, restart 0, pass_grace 0, restart 0, settle 0"
    ),
    "an ended run's lease is another's by now, and nothing of its start is committed": (
        "look 1, go_on 0, submit 0, settle 0, work 0, work 1, work 1, work 1, settle 0, submit 0, settle 0, "
        "fall_silent 1, restart 0, begin_and_die 0, settle 0"
    ),
    "an ended run's lease is another's by now, and its agent dies with the gateway": (
        "look 1, submit 0, settle 0, work 1, work 1, work 1, settle 0, submit 0, settle 0, "
        "kill_agent 1, restart 0, settle 0"
    ),
    "a node has ended what an earlier gateway did not want, and the next one waits for its results": (
        "restart 0, settle 0, work 0, work 0, work 0, work 0, submit 0, settle 0, begin_and_die 0"
    ),
}


@pytest.mark.parametrize("history", _FOUND.values(), ids=_FOUND)
def test_what_was_found_once(history: str) -> None:
    _live([(getattr(World, name), int(number)) for name, number in (step.split() for step in history.split(", "))])


@pytest.mark.thorough
@pytest.mark.soak
@settings(max_examples=sized(2000, 30_000), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(history=st.binary(min_size=40, max_size=100))
def test_no_gpu_has_two_attempts_and_each_run_ends_once(history: bytes) -> None:
    pairs = zip(history[::2], history[1::2], strict=False)
    _live([(_ACTIONS[action % len(_ACTIONS)], number) for action, number in pairs])


def _live(history: list[tuple[Callable[[World, int], None], int]]) -> None:
    world = World()
    world.submit(1)
    for act, number in history:
        act(world, number)
        world.check_gpus()
    world.become_quiet()
