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


@pytest.mark.thorough
@pytest.mark.soak
@settings(max_examples=sized(2000, 30_000), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(history=st.binary(min_size=40, max_size=100))
def test_no_gpu_has_two_attempts_and_each_run_ends_once(history: bytes) -> None:
    world = World()
    world.submit(1)
    for action, number in zip(history[::2], history[1::2], strict=False):
        _ACTIONS[action % len(_ACTIONS)](world, number)
        world.check_gpus()
    world.become_quiet()
