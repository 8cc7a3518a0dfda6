"""Costs of the suites: ``tests/durations.json`` plans the next run by them, the closing lines say them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from outcomes import Outcomes, module_of

FILE = Path(__file__).parents[1] / "durations.json"
#: a module that the file does not name takes so long; faster ones are not named
_SHORT_S = 1.0
#: a test that takes longer has a marker that says so
_LONG_S = 10.0
_SLOWEST = 30


@dataclass
class Durations:
    """Seconds of each module, and of each job that is no pytest session: without the thorough tests, and with them."""

    quick: dict[str, float] = field(default_factory=dict)
    everything: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Durations:
        """Those of the last run that was recorded."""
        return cls(**json.loads(FILE.read_text())) if FILE.exists() else cls()

    def of(self, names: Iterable[str], *, everything: bool) -> dict[str, float]:
        """Seconds that each of them is expected to take."""
        known = self.everything if everything else self.quick
        unknown_s = {name: 0.0 if name in self.everything else _SHORT_S for name in names}
        return {name: known.get(name, unknown_s[name]) for name in unknown_s}

    def write(self) -> None:
        """Keep them, a line each, so that a change is read as one."""
        FILE.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")


def recorded(whole: Outcomes, jobs: Mapping[str, float]) -> Durations:
    """The durations that a run of everything shows; ``jobs``: those that are no pytest sessions."""
    quick, everything = defaultdict[str, float](float, jobs), defaultdict[str, float](float, jobs)
    thorough = set(whole.thorough)
    for test, seconds in whole.seconds.items():
        everything[module_of(test)] += seconds
        if test not in thorough:
            quick[module_of(test)] += seconds
    return Durations(_long(quick), _long(everything))


def _long(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(each, 1) for name, each in seconds.items() if each > _SHORT_S}


def split(seconds: Mapping[str, float], parts: int) -> list[list[str]]:
    """Names in ``parts`` lists that take about as long each; in each list they keep their order."""
    filled: list[list[str]] = [[] for _ in range(parts)]
    took = [0.0] * parts
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        least = took.index(min(took))
        filled[least].append(name)
        took[least] += seconds[name]
    return [sorted(names) for names in filled]


def suites(whole: Outcomes) -> list[str]:
    """A line for each folder of tests: its tests, CPU seconds of all its processes, and wall seconds."""
    tests, wall_s, cpu_s = defaultdict[str, int](int), defaultdict[str, float](float), defaultdict[str, float](float)
    for test, seconds in whole.seconds.items():
        tests[_suite_of(test)] += 1
        wall_s[_suite_of(test)] += seconds
    for module, seconds in whole.cpu_s.items():
        cpu_s[_suite_of(module)] += seconds
    order = sorted(tests, key=lambda suite: -wall_s[suite])
    return [line(suite, tests[suite], cpu_s[suite], wall_s[suite]) for suite in order]


def line(name: str, tests: int, cpu_s: float, wall_s: float) -> str:
    """The cost of a suite, in a line."""
    return f"{name:28} {tests:5} tests {cpu_s:7.0f} s of CPU {wall_s:7.0f} s"


def _suite_of(test: str) -> str:
    parts = module_of(test).split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def costliest(whole: Outcomes) -> list[str]:
    """A line for each of the modules that took most CPU."""
    order = sorted(whole.cpu_s, key=lambda module: -whole.cpu_s[module])
    return [f"{whole.cpu_s[module]:7.1f} s  {module}" for module in order[:_SLOWEST]]


def slowest(whole: Outcomes) -> list[str]:
    """A line for each of the slowest tests."""
    order = sorted(whole.seconds, key=lambda test: -whole.seconds[test])
    return [f"{whole.seconds[test]:7.1f} s  {test}" for test in order[:_SLOWEST]]


def unmarked(whole: Outcomes) -> list[str]:
    """The tests that took long without a marker that says so."""
    may: Collection[str] = set(whole.may_be_slow)
    return [test for test, seconds in whole.seconds.items() if seconds > _LONG_S and test not in may]


def closing(whole: Outcomes, jobs: Sequence[str]) -> str:
    """Costs of each suite, the costliest modules, the slowest tests."""
    lines = ["##### what each suite cost", *suites(whole), *jobs, "", "##### the modules that cost most CPU"]
    lines += [*costliest(whole), "", "##### the slowest tests", *slowest(whole)]
    if long := unmarked(whole):
        lines += ["", f"##### took more than {_LONG_S:.0f} s, without a marker `thorough` or `slow`", *long]
    return "\n".join(lines)
