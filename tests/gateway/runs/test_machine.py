"""The machine of a run's life: in virtual time, whatever happens, no GPU has two attempts, and each run ends once."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_world import World
from soak import sized

#: actions, some more often than others
_ACTIONS = [
    *[World.submit] * 3,
    *[World.go_on] * 8,
    *[World.deliver] * 6,
    *[World.work] * 6,
    *[World.look] * 5,
    World.cancel,
    *[World.preempt] * 2,
    World.kill_rank,
    World.kill_agent,
    *[World.fall_silent] * 2,
    *[World.come_back] * 2,
    World.pass_grace,
    World.commit,
    World.restart,
]


@pytest.mark.soak
@settings(max_examples=sized(2000, 20_000), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(history=st.lists(st.integers(0, 12 * len(_ACTIONS) - 1), min_size=20, max_size=60))
def test_no_gpu_has_two_attempts_and_each_run_ends_once(history: list[int]) -> None:
    world = World()
    world.submit(1)
    for number in history:
        _ACTIONS[number % len(_ACTIONS)](world, number // len(_ACTIONS))
        world.check_gpus()
    world.become_quiet()
