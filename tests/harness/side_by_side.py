"""``make test`` and ``make test-all``: the suite as several sessions, three at a time, as long as each other.

Folders that use one cluster share a session; a group of folders that would be the last to end is split, by the seconds
that its modules took before (``tests/durations.json``). pytest-xdist is not used: its workers take any test, and here a
browser's tests and a Jupyter server's cannot share a process, a cluster costs ten seconds of CPU for each worker that
meets one, and a worker that is killed takes its word about what it left with it.

What a session said is printed whole when it has ended, and why it failed once more at the very end: a log that was
cut still shows it. Sessions share nothing: each has its own runtime folder, cluster and check for what is left behind
(``tests/conftest.py``). No test gets a second try. Then come what each suite cost and the slowest tests. The last line
is that of all: ``2500 passed, 0 failed``.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import costs
from costs import Durations
from outcomes import OPTION, Outcomes

TESTS = Path(__file__).parents[1]
#: one more than CPUs: a session waits for something a third of its time
AT_ONCE = 3
_METERED = [sys.executable, str(Path(__file__).with_name("metered.py"))]
_PYTEST = [sys.executable, "-m", "pytest"]
#: `make test` leaves them out
_QUICK = ["-m", "not thorough"]
_TESTS_FAILED = 1
#: the folders that share a session. All that is not here is one more, the units
_TOGETHER = {
    "kernels": ("kernel", "notebooks", "functions", "assistant"),  # the session's cluster
    "clusters": ("cli", "local_cluster", "faults"),  # started and killed
    "gateway": ("gateway", "client"),
    "server": ("server_extension",),
    "browser": ("ui",),  # together with the server's tests they fail at teardown
}
_BENCHMARKS = [sys.executable, "-m", "benchmarks"]
_TEST, _TEST_ALL = False, True
#: what is no session of pytest, and what it is of
_COMMANDS = {
    "a benchmark": ([*_BENCHMARKS, "start", "--quick"], {_TEST}),
    "every benchmark": ([*_BENCHMARKS, "all", "--quick"], {_TEST_ALL}),
    "Python 3.13": (["make", "--no-print-directory", "test-python"], {_TEST_ALL}),
    "the sidebar's units": (["make", "--no-print-directory", "test-js"], {_TEST, _TEST_ALL}),
}
_LOOK_S = 0.2
#: so many lines of a failed test, or session, are shown again at the end
_BEFORE = 40
#: of a failure so many lines, so long, are said once more
_FEW, _SHORT = 4, 200
_ERROR = re.compile(r"[\w.]*(Error|Exception): ")
_PLACE = re.compile(r"tests/\S+\.py:\d+: in ")


@dataclass(frozen=True)
class Job:
    """One session; ``is_pytest``: it says what its tests came to."""

    name: str
    command: list[str]
    is_pytest: bool = False
    expected_s: float = 0.0


@dataclass
class Running:
    """A job under way, whose output goes to a file without a name."""

    job: Job
    folder: Path
    output: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    began_s: float = field(default_factory=time.monotonic)
    took_s: float = 0.0
    cpu_s: float = 0.0
    said: str = ""
    outcomes: Outcomes = field(default_factory=Outcomes)

    def __post_init__(self) -> None:
        own = self.folder / str(time.monotonic_ns())
        self._outcomes = own.with_suffix(".json")
        # a folder of its own: sessions that tidy pytest's common one get into each other's way
        options = [OPTION, str(self._outcomes), f"--basetemp={own}"] if self.job.is_pytest else []
        words = [*_METERED, *self.job.command, *options]
        self.process = subprocess.Popen(words, stdout=self.output, stderr=subprocess.STDOUT, env=_environment())

    def has_ended(self) -> bool:
        """Ask, and keep what it cost: all its processes, since it waited for them."""
        if self.process.returncode is None:
            ended, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if ended:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = usage.ru_utime + usage.ru_stime
        return self.process.returncode is not None

    def report(self) -> str:
        """How it ended, in a line."""
        status = self.process.returncode
        end = "passed" if status == 0 else f"FAILED (exit status {status})"
        return f"{self.job.name}: {end} in {self.took_s:.0f} s ({self.cpu_s:.0f} s of CPU)"

    def end(self) -> None:
        """Its process is gone: keep what it said, and what its tests came to."""
        self.took_s = time.monotonic() - self.began_s
        self.output.seek(0)
        self.said = self.output.read().decode(errors="replace")
        self.output.close()
        self.outcomes = self._read_outcomes()

    def show(self) -> None:
        """All that it said."""
        _say(f"\n##### {self.report()}\n\n{self.said.rstrip()}")

    def _read_outcomes(self) -> Outcomes:
        """One that crashed, or failed without a failed test, failed as a whole."""
        status = self.process.returncode
        found = Outcomes.read(self._outcomes) or Outcomes(passed=0 if self.job.is_pytest else int(status == 0))
        if status == 0 and self.job.is_pytest and not self._outcomes.exists():
            found.failed[self.job.name] = f"it ended well, and without a word about its tests\n{self.said}"
        if status != 0 and (status != _TESTS_FAILED or not found.failed):
            found.failed[self.job.name] = f"{self.said.rstrip()}\nexit status {status}"
        return found


def _environment() -> dict[str, str]:
    """Ours, but that modules are compiled once: containers forbid it, and hundreds of processes would each do it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def why_failed(words: str) -> str:
    """Where it failed, and the last lines that it said."""
    lines = words.splitlines()
    places = [line for line in lines[:-_BEFORE] if _PLACE.match(line)]  # what a browser showed is longer than that
    return "\n".join([*places[-_BEFORE:], *lines[-_BEFORE:]])


def in_short(words: str) -> list[str]:
    """Its errors, a line each, else its last words: a log of which only the end is left tells them, too."""
    lines = [line.rstrip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E  ") or _ERROR.match(line)]
    return [line[:_SHORT] for line in list(dict.fromkeys(errors))[:_FEW] or lines[-_FEW:]]


def by_reason(failed: dict[str, str]) -> list[str]:
    """Each reason once, with the first test of a module that failed for it, and how many more did: the log's last lines
    are all that some see.
    """
    tests: dict[tuple[str, str], list[str]] = {}
    for test, why in failed.items():
        reason = next(iter(in_short(why)), "").removeprefix("E").strip()
        tests.setdefault((test.partition("::")[0], reason), []).append(test)
    more = (f" and {len(those) - 1} more" if len(those) > 1 else "" for those in tests.values())
    return [f"{those[0]}{others}: {reason}" for ((_, reason), those), others in zip(tests.items(), more, strict=True)]


def run(jobs: Iterable[Job], at_once: int = AT_ONCE, *, record: bool = False) -> int:
    """Run all of them, whatever fails; 0 when nothing did. Told to end, they end (and clean up) first."""
    ended: list[Running] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        contextlib.closing(_sessions(deque(jobs), at_once, Path(folder))) as sessions,
    ):
        for each in sessions:
            ended.append(each)
            each.show()
    whole = Outcomes.sum(each.outcomes for each in ended)
    if record and not whole.failed:
        _record(ended, whole)
    return _close(ended, whole)


def _record(ended: Iterable[Running], whole: Outcomes) -> None:
    """Keep how long everything took, for the next plan; the file is committed with the change that needs it."""
    costs.recorded(whole, {each.job.name: each.took_s for each in ended if not each.job.is_pytest}).write()


def _close(ended: list[Running], whole: Outcomes) -> int:
    """The closing lines; returns the exit status."""
    _say("\n" + "\n".join(f"##### why {test} failed\n{why_failed(why)}\n" for test, why in whole.failed.items()))
    _say(costs.closing(whole, _lines_of_jobs(ended)) + "\n")
    _say("\n".join("\n  ".join([test, *in_short(why)]) for test, why in whole.failed.items()))
    _say("\n".join(f"##### {each.report()}" for each in ended))
    _say("\n".join(f"##### FAILED {line}" for line in by_reason(whole.failed)))
    _say(str(whole))
    return int(bool(whole.failed))


def _lines_of_jobs(ended: Iterable[Running]) -> list[str]:
    return [costs.line(each.job.name, 1, each.cpu_s, each.took_s) for each in ended if not each.job.is_pytest]


def _sessions(waiting: deque[Job], at_once: int, folder: Path) -> Generator[Running]:
    """Each as it ends. Those that run when this is closed are told to end, and shown."""
    running = list[Running]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(Running(waiting.popleft(), folder))
                _say(f"##### {running[-1].job.name}: begins")
            for each in list(_ended(running)):
                running.remove(each)
                each.end()
                yield each
    finally:
        for each in running:
            each.process.terminate()
        for each in running:
            while not each.has_ended():
                time.sleep(_LOOK_S)
        for each in running:
            each.end()
            each.show()


def _ended(running: list[Running]) -> Iterator[Running]:
    time.sleep(_LOOK_S)
    return (each for each in running if each.has_ended())


def _say(text: str) -> None:
    print(text, flush=True)


def suite(*, everything: bool) -> list[Job]:
    """The jobs of ``make test-all`` or ``make test``, the longest first; what nobody named runs as well."""
    durations = Durations.read()
    there = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("**/test_*.py")}
    others = tuple(sorted(there - {folder for folders in _TOGETHER.values() for folder in folders}))
    groups = {
        name: _modules(folders, durations, everything) for name, folders in {**_TOGETHER, "units": others}.items()
    }
    commands = {name: command for name, (command, of) in _COMMANDS.items() if everything in of}
    known = durations.of(commands, everything=everything)
    longest_s = (sum(known.values()) + sum(sum(group.values()) for group in groups.values())) / AT_ONCE / 2
    jobs = [Job(name, command, expected_s=known[name]) for name, command in commands.items()]
    for name, group in groups.items():
        jobs += _sessions_of(name, group, math.ceil(sum(group.values()) / longest_s), everything)
    return sorted(jobs, key=lambda job: -job.expected_s)


def _modules(names: Iterable[str], durations: Durations, everything: bool) -> dict[str, float]:
    """Module → seconds, of all in these folders."""
    files = [file for name in names for file in (sorted(TESTS.glob(f"{name}/**/test_*.py")) or [TESTS / name])]
    return durations.of([str(file.relative_to(TESTS.parent)) for file in files], everything=everything)


def _sessions_of(name: str, group: dict[str, float], parts: int, everything: bool) -> list[Job]:
    jobs = []
    for number, modules in enumerate(costs.split(group, parts), 1):
        called = f"{name} ({number} of {parts})" if parts > 1 else name
        command = [*_PYTEST, *([] if everything else _QUICK), *modules]
        jobs.append(Job(called, command, is_pytest=True, expected_s=sum(group[module] for module in modules)))
    return jobs


def _stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="the thorough tests as well")
    parser.add_argument("--plan", action="store_true", help="say what would run together, and run nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    os.chdir(TESTS.parent)
    jobs = suite(everything=options.all)
    if options.plan:
        _say("\n".join(f"{job.expected_s:6.0f} s  {job.name}" for job in jobs))
        return 0
    return run(jobs, record=options.all)


if __name__ == "__main__":
    sys.exit(_main())
