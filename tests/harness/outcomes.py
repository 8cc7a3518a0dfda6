"""What a pytest session came to, in a file: how many tests passed, which failed, with their words, what they cost."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from metered import VARIABLE, cpu_s

OPTION = "--outcomes"
#: characters of what a failed test printed
_CAPTURED = 4000
#: the markers of a test that may take long
_MAY_BE_SLOW = ("thorough", "slow")


@dataclass
class Outcomes:
    """What tests came to.

    Attributes:
        failed: Test, or module that left something behind → why it failed.
        seconds: Test → seconds with its set-up and teardown. A module's fixtures count for its first and last test.
        cpu_s: Module → CPU seconds of all processes of its session while it ran.
        may_be_slow: The tests with a marker for that; ``thorough``: those of ``make test-all`` alone.
    """

    passed: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    may_be_slow: list[str] = field(default_factory=list)
    thorough: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Outcomes | None:
        """Those of a session that came to its end."""
        return cls(**json.loads(path.read_text())) if path.exists() else None

    @classmethod
    def sum(cls, parts: Iterable[Outcomes]) -> Outcomes:
        whole = cls()
        for part in parts:
            whole.passed += part.passed
            whole.skipped += part.skipped
            whole.failed |= part.failed
            whole.seconds |= part.seconds
            whole.cpu_s |= part.cpu_s
            whole.may_be_slow += part.may_be_slow
            whole.thorough += part.thorough
        return whole

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {len(self.failed)} failed{skipped}"


def module_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


def _words(report: pytest.TestReport) -> str:
    """How it failed, and the end of what it printed and logged."""
    captured = [f"----- {title}\n{text[-_CAPTURED:]}" for title, text in report.sections if text.strip()]
    return "\n".join([report.longreprtext, *captured])


class OutcomesPlugin:
    """Counts as the reports come, and writes them when the session ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = Outcomes()
        self._passed: set[str] = set()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        #: the root of this session's processes; without the runner nothing is counted
        self._root = int(os.environ.get(VARIABLE, "0"))
        self._counted_s = self._cpu_s()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember which of the tests that will run have a marker."""
        for item in session.items:
            if any(item.get_closest_marker(name) for name in _MAY_BE_SLOW):
                self._found.may_be_slow.append(item.nodeid)
            if item.get_closest_marker("thorough"):
                self._found.thorough.append(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, bool, bool]:
        """Count what a module cost when its last test has ended."""
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                before, self._counted_s = self._counted_s, self._cpu_s()
                self._found.cpu_s[module_of(item.nodeid)] = self._counted_s - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each phase of each test; who left something behind is known of a module only."""
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            what = report.nodeid if report.when != "teardown" else module_of(report.nodeid)
            self._found.failed.setdefault(what, _words(report))
            self._passed.discard(report.nodeid)
        elif report.skipped:
            self._found.skipped += 1
        elif report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported."""
        if report.failed:
            self._found.failed[report.nodeid] = report.longreprtext

    def pytest_sessionfinish(self) -> None:
        """The last hook that a session calls on whatever way out."""
        self._found.passed = len(self._passed)
        self._found.seconds = {test: round(seconds, 3) for test, seconds in self._seconds.items()}
        self._path.write_text(json.dumps(asdict(self._found)))

    def _cpu_s(self) -> float:
        return cpu_s(self._root) if self._root else 0.0
