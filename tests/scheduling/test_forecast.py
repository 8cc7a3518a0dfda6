"""Learned run times: a guess lets nobody pass, and a run that is put back has taught nothing."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.scheduling.forecast import LearnedForecast
from jupyter_gpu_release.scheduling.workload import GPU, Rank, Run


def submitted(forecast: LearnedForecast, name: str, now_s: float = 0.0, limit_s: float | None = None) -> Run:
    forecast.submitted(name, "ann", 1, "", now_s, "n.ipynb#c")
    return Run(name, "q", (Rank(),), GPU, 1, user="ann", submitted_at=now_s, limit_s=limit_s)


def test_a_run_that_is_like_no_other_may_take_as_long_as_its_limit() -> None:
    forecast = LearnedForecast(8)
    first, limited = submitted(forecast, "first"), submitted(forecast, "limited", limit_s=60.0)
    assert forecast.expected_s(first, 0.0) is None
    assert forecast.expected_s(limited, 0.0) == 60.0
    forecast.started("first", 0.0)
    forecast.ended("first", 20.0)
    assert forecast.expected_s(limited, 20.0) == pytest.approx(20.0)


def test_a_run_that_is_put_back_waits_as_before() -> None:
    forecast = LearnedForecast(8)
    one, two = submitted(forecast, "one"), submitted(forecast, "two", 5.0)
    before = forecast.rank(one, 50.0), forecast.overtaken_s("one", 50.0), forecast.rank(two, 50.0)
    forecast.started("one", 10.0)
    assert forecast.has_started("one")
    forecast.put_back("one")
    assert not forecast.has_started("one")
    assert (forecast.rank(one, 50.0), forecast.overtaken_s("one", 50.0), forecast.rank(two, 50.0)) == before
    forecast.started("one", 20.0)
    forecast.ended("one", 30.0)
    assert not forecast.knows("one")


def test_a_run_that_nobody_told_of_says_itself_how_long_it_takes() -> None:
    forecast = LearnedForecast(8)
    stranger = Run("stranger", "q", (Rank(),), GPU, 1, expected_s=30.0)
    assert forecast.expected_s(stranger, 0.0) == 30.0
    assert forecast.remaining_s(stranger, 0.0, 10.0) == 20.0
    assert len(forecast.rank(stranger, 10.0)) == 1
    forecast.started("stranger", 0.0)
    forecast.ended("stranger", 1.0)
