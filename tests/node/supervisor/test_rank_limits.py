"""Limits of a rank: its memory is that of all its processes, and no progress is not the same as much to load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.node.supervisor import limits
from jupyter_gpu_release.node.supervisor.limits import MemoryLimit, StallWatch

_GIB = 1 << 30


class _Host:
    """Processes with memory: pid → (what the kernel counts quickly, what is really theirs), in GiB."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.used: dict[int, tuple[float, float]] = {}
        self.looks = 0
        patch.setattr(process_control, "descendants_of", self._pids)
        patch.setattr(process_control, "anonymous_bytes", lambda pid: int(self.used[pid][0] * _GIB))
        patch.setattr(process_control, "own_bytes", lambda pid: int(self.used[pid][1] * _GIB))

    def _pids(self, _parent: int) -> Iterator[int]:
        self.looks += 1
        return iter(list(self.used))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> _Host:
    return _Host(monkeypatch)


def test_the_memory_of_all_processes_counts_and_what_the_fork_server_had_does_not(host: _Host) -> None:
    limit = MemoryLimit(4 * _GIB)
    host.used = {10: (9.0, 9.0)}
    assert not limit.is_exceeded(0.0), "it has not begun"
    limit.start(_GIB)
    host.used = {10: (3.0, 2.0), 11: (3.0, 2.0)}  # each counts the GiB that both share with the fork server
    assert not limit.is_exceeded(0.0)
    host.used = {10: (3.0, 2.5), 11: (3.5, 2.5)}
    assert limit.is_exceeded(1.0)
    error = limit.outcome().error
    assert error is not None
    assert "the cell used 5 GiB of host memory, its limit is 4 GiB, so it was ended" in error.evalue
    assert "--memory 10GiB" in error.hint, "twice of what it used"


def test_an_estimate_that_was_too_high_ends_nobody_and_is_not_made_again_at_once(host: _Host) -> None:
    limit = MemoryLimit(4 * _GIB)
    limit.start(0)
    host.used = {10: (5.0, 3.0)}
    assert [limit.is_exceeded(at_s) for at_s in (0.0, 0.5, 0.9)] == [False] * 3
    assert host.looks == 1
    host.used = {10: (5.0, 4.5)}
    assert [limit.is_exceeded(at_s) for at_s in (0.95, 1.1)] == [False, True]


def test_ranks_of_a_node_share_its_memory_and_without_a_limit_nothing_is_looked_at(host: _Host) -> None:
    limit = MemoryLimit(8 * _GIB, ranks=2)
    limit.start(0)
    host.used = {10: (5.0, 5.0)}
    assert limit.is_exceeded(0.0)
    error = limit.outcome().error
    assert error is not None
    assert "its limit is 4 GiB (8 GiB shared by the 2 ranks of its node)" in error.evalue
    assert "--memory 20GiB" in error.hint
    looks, free = host.looks, MemoryLimit(0)
    free.start(0)
    assert not free.is_exceeded(9.0)
    assert host.looks == looks


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The process's work so far; a test changes it."""
    done = [b"0"]
    monkeypatch.setattr(limits, "_progress", lambda _pid: list(done))
    return done


def test_who_does_nothing_for_the_limit_is_stalled_and_who_loads_for_hours_is_not(progress: list[bytes]) -> None:
    watch = StallWatch(1, 120.0)
    assert not watch.is_stalled(1e6), "it has no GPUs yet"
    watch.start(0.0)
    for at_s in range(0, 7200, 12):
        progress[0] = b"%d" % at_s
        assert not watch.is_stalled(float(at_s))
    assert not watch.is_stalled(7188.0 + 119.0)
    assert watch.is_stalled(7188.0 + 132.0)
    watch.stop()
    assert not watch.is_stalled(1e6)


def test_without_a_limit_it_may_take_any_time(progress: list[bytes]) -> None:
    watch = StallWatch(1, 0.0)
    watch.start(0.0)
    assert not watch.is_stalled(1e6)
    assert progress


@pytest.mark.parametrize(
    ("state", "why"),
    [("D", "a filesystem or a driver"), ("T", "SIGSTOP"), ("t", "a debugger"), ("S", "something that does not come")],
)
def test_it_is_said_what_a_stuck_rank_waits_for(state: str, why: str) -> None:
    outcome = StallWatch(1, 120.0).outcome(state)
    assert outcome.error is not None
    assert (outcome.status, outcome.error.ename, outcome.error.code) == ("lost", "CellNotBegun", "lost")
    assert "did nothing for 2 min" in outcome.error.evalue
    assert why in outcome.error.evalue
