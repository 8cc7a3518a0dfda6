"""The futures of a map together: one limit for all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_gpu_release.errors import RunLostError
from jupyter_gpu_release.functions import mapped_futures
from jupyter_gpu_release.functions.item_future import ItemFuture
from jupyter_gpu_release.functions.mapped_futures import MappedFutures
from jupyter_gpu_release.protocol.fetch import ItemOutcome


class Clock:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Slow:
    """Takes ``took_s`` from the moment in which somebody waits for it."""

    def __init__(self, clock: Clock, took_s: float) -> None:
        self.clock, self.took_s = clock, took_s

    def exception(self, limit_s: float | None) -> None:
        if limit_s is not None and limit_s < self.took_s:
            self.clock.now_s += limit_s
            raise TimeoutError
        self.clock.now_s += self.took_s

    def result(self) -> float:
        return self.took_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(mapped_futures, "time", clock)
    return clock


def _mapped(clock: Clock, *took_s: float) -> MappedFutures[float]:
    futures: Any = [Slow(clock, each) for each in took_s]
    return MappedFutures("work", cast(list[ItemFuture[float]], futures), None)


def test_the_limit_is_for_all_of_them(clock: Clock) -> None:
    assert _mapped(clock, 20, 20, 20).results(timeout=60) == [20, 20, 20]
    began_s = clock.now_s
    with pytest.raises(TimeoutError):
        _mapped(clock, 50, 50, 50).results(timeout=60)
    assert clock.now_s - began_s == 60


def test_without_a_limit_it_waits_for_all(clock: Clock) -> None:
    assert _mapped(clock, 1000, 1000).results() == [1000, 1000]


def test_an_item_that_failed_is_raised_or_stands_in_its_place() -> None:
    launcher: Any = SimpleNamespace(value_of=lambda _view, _name: 7)
    futures: list[ItemFuture[int]] = [ItemFuture(launcher, "f", n, n, bool, str) for n in range(3)]
    mapped, lost = MappedFutures("f", futures, None), RunLostError("gone")
    futures[1].give_up(lost)
    assert not mapped.done()
    for number in (0, 2):
        futures[number].on_end("r", ItemOutcome(number))
    assert (mapped.done(), mapped.results(return_exceptions=True)) == (True, [7, lost, 7])
    with pytest.raises(RunLostError):
        mapped.results()
