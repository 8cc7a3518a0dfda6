"""Calls as lists of runs show them: short, without secrets, and no object is asked for its ``repr``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from jupyter_gpu_release.functions.arguments import Call, MapCall, TrialCall
from jupyter_gpu_release.functions.call_title import call_title


@dataclass
class Config:
    rate: float = 0.1
    layers: tuple[int, ...] = (64, 32)
    api_key: str = "abc"


class Slow:
    def __repr__(self) -> str:
        raise AssertionError("a large array's repr takes long")


def trial(cfg: Any, data: Any = None, *, seed: int = 0) -> None:
    """A function."""


@pytest.mark.parametrize(
    ("args", "kwargs", "title"),
    [
        (({"rate": 0.1, "net": {"width": 64}},), {"seed": 3}, "trial({'rate': 0.1, 'net': {'width': 64}}, seed=3)"),
        ((Config(),), {}, "trial(Config(rate=0.1, layers=(64, 32), api_key=…))"),
        ((None, Slow()), {}, "trial(None, data)"),
        (([Slow(), True],), {}, "trial([cfg, True])"),
        ((list(range(100)),), {}, "trial([0, 1, 2, 3, 4, 5, …])"),
        (({1: 2},), {}, "trial(cfg)"),
        (({"a": {"b": {"c": {}}}},), {}, "trial({'a': {'b': b}})"),
        (("hf_" + "a1B2" * 8,), {}, "trial(…)"),
        (("x" * 30,), {"data": 10**5000}, f"trial('{'x' * 23}…', data=data)"),
        ((1 / 3,), {}, "trial(0.333333)"),
    ],
)
def test_a_call_is_shown_as_it_is_written(args: tuple[Any, ...], kwargs: dict[str, Any], title: str) -> None:
    assert Call(trial, args, kwargs).shown == title


def test_a_long_call_is_cut() -> None:
    title = call_title("trial", (), {f"parameter_{number}": number for number in range(9)})
    assert (len(title), title[-1]) == (80, "…")


def test_of_many_calls_the_name_says_enough() -> None:
    assert MapCall(trial, [list(range(9))]).shown == ""
    assert TrialCall(trial, (), {"seed": 1}).shown == "trial(seed=1)"
