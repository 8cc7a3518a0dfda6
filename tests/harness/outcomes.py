"""What a pytest session came to, in a file: how many tests passed, and which failed, with their words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

OPTION = "--outcomes"
#: characters of what a failed test printed
_CAPTURED = 4000


@dataclass
class Outcomes:
    """``failed``: what to run again → why it failed. A module that left something behind is run again whole."""

    passed: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)

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
        return whole

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {len(self.failed)} failed{skipped}"


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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each phase of each test; who left something behind is known of a module only."""
        if report.failed:
            what = report.nodeid if report.when != "teardown" else report.nodeid.partition("::")[0]
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
        self._path.write_text(json.dumps(asdict(self._found)))
