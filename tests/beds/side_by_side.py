"""``make test``: the suite as several sessions, two at a time, since each of them waits for much of its time.

What a session said is printed whole when it has ended, and why it failed once more at the very end: a log that was
cut still shows it. Sessions share nothing: each has its own runtime folder, cluster and check for what is left behind
(``tests/conftest.py``).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

TESTS = Path(__file__).parents[1]
AT_ONCE = 2
#: what shares a session; the longest first, so that the last ones to run are short. All that is not here is one more
_TOGETHER = (
    ("kernel", "notebooks", "functions"),  # the session's cluster
    ("cli", "faults"),  # clusters that are started and killed
    ("broker", "client"),
    ("server",),
)
#: in the browser, see the Makefile: together with the server's tests they fail at teardown
_SIDEBAR = "ui"
_LOOK_S = 0.2
#: where pytest begins to name what failed; so many lines before it are the end of the last traceback
_SUMMARY, _BEFORE = "short test summary info", 40
_PLACE = re.compile(r"tests/\S+\.py:\d+: in ")


@dataclass(frozen=True)
class Job:
    """One session."""

    name: str
    command: list[str]


@dataclass
class Running:
    """A job under way, whose output goes to a file without a name."""

    job: Job
    output: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(self.job.command, stdout=self.output, stderr=subprocess.STDOUT)

    def report(self) -> str:
        """How it ended, in a line."""
        status = self.process.returncode
        end = "passed" if status == 0 else f"FAILED (exit status {status})"
        return f"{self.job.name}: {end} in {time.monotonic() - self.began_s:.0f} s"

    def show(self) -> str:
        """All that it said; returns why it failed, in short (empty: it has not failed)."""
        self.output.seek(0)
        said = self.output.read()
        self.output.close()
        _say(f"\n##### {self.report()}\n")
        sys.stdout.buffer.write(said)
        sys.stdout.flush()
        return why_failed(said.decode(errors="replace").splitlines()) if self.process.returncode != 0 else ""


def why_failed(lines: list[str]) -> str:
    """Where tests failed, the end of the last traceback, each failed test. Without a summary: the last lines."""
    at = max((n for n, line in enumerate(lines) if _SUMMARY in line), default=len(lines))
    failed = [line for line in lines[at:] if line.startswith(("FAILED", "ERROR"))]
    places = [line for line in lines[:at] if _PLACE.match(line)]  # what a browser showed is longer than the lines kept
    return "\n".join([*places[-_BEFORE:], *lines[max(0, at - _BEFORE) : at], *failed])


def run(jobs: Iterable[Job], at_once: int = AT_ONCE) -> int:
    """Run all of them, whatever fails; 0 when none has failed. Told to end, they end (and clean up) first."""
    waiting, running, reports, failures = deque(jobs), list[Running](), list[str](), list[str]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(Running(waiting.popleft()))
                _say(f"##### {running[-1].job.name}: begins")
            for each in list(_ended(running)):
                running.remove(each)
                why = each.show()
                reports.append(each.report())
                if each.process.returncode != 0:
                    failures.append(f"##### why {each.report()}\n{why}\n")
    finally:
        for each in running:
            each.process.terminate()
        for each in running:
            each.process.wait()
            each.show()
    _say("\n" + "\n".join([*failures, *(f"##### {report}" for report in reports)]))
    return int(bool(failures))


def _ended(running: list[Running]) -> Iterator[Running]:
    time.sleep(_LOOK_S)
    return (each for each in running if each.process.poll() is not None)


def _say(text: str) -> None:
    print(text, flush=True)


def suite() -> list[Job]:
    """The jobs of ``make test``; a folder or file that nobody named runs, too."""
    there = {path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py")) or path.match("test_*.py")}
    named = {name for names in _TOGETHER for name in names} | {_SIDEBAR}
    groups = [*_TOGETHER, tuple(sorted(there - named))]
    jobs = [
        Job(" ".join(names), [sys.executable, "-m", "pytest", *(str(TESTS / name) for name in names)])
        for names in groups
    ]
    sidebar = Job("the sidebar", ["make", "--no-print-directory", "test-ui"])
    return [*jobs[:2], sidebar, *jobs[2:]]


def _stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    os.chdir(TESTS.parent)
    sys.exit(run(suite()))
