"""The runner of ``make test`` and ``make test-all``."""

from __future__ import annotations

import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import costs
import pytest
import side_by_side
from costs import Durations, split
from outcomes import Outcomes
from side_by_side import Job, run, suite

_MEET = "import sys, time\nfrom pathlib import Path\nmine, other = map(Path, sys.argv[1:])\nmine.touch()\n" + (
    "end = time.monotonic() + 60\nwhile not other.exists():\n    assert time.monotonic() < end\n    time.sleep(0.01)\n"
)


def _python(name: str, code: str, *words: object) -> Job:
    return Job(name, [sys.executable, "-c", code, *map(str, words)])


def test_two_run_at_once_and_what_each_said_stays_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    say = "for n in range(3): print('{0}', n, flush=True)"
    jobs = [
        _python("one", _MEET + say.format("one"), here, there),
        _python("two", _MEET + say.format("two"), there, here),
    ]
    assert run(jobs) == 0
    said = capfd.readouterr().out
    assert "one 0\none 1\none 2\n" in said
    assert "two 0\ntwo 1\ntwo 2\n" in said


def test_one_that_fails_fails_all_and_the_others_run(capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [_python("bad", "print('why'); raise SystemExit(3)"), _python("good", ""), _python("last", "print('ran')")]
    assert run(jobs) == 1
    said = capfd.readouterr().out
    assert "##### bad: FAILED (exit status 3)" in said
    assert "why\n" in said
    assert "ran\n" in said


def test_why_a_session_failed_is_said_once_more_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    """The log that CI keeps is cut: what is at its end is there."""
    said = "\n".join(
        f"for n in range({count}): print('{word}', n)" for word, count in (("tests/x.py:7: in x", 1), ("trace", 40))
    )
    jobs = [_python("good", "print('is well')"), _python("bad", f"{said}\nraise SystemExit('no')")]
    assert run([*jobs, _python("broken", "raise SystemExit(3)")], at_once=1) == 1
    why, after = capfd.readouterr().out.split("##### why bad failed\n")[1].split("##### why broken failed\n")
    traces = [f"trace {n}" for n in range(2, 40)]
    assert why.splitlines()[:-1] == ["tests/x.py:7: in x 0", *traces, "no", "exit status 1"]
    assert after.lstrip().startswith("exit status 3")
    assert "is well" not in why + after


def test_told_to_end_it_ends_its_sessions_first(
    tmp_path: Path, until: Callable[[Callable[[], object], str], None]
) -> None:
    began, cleaned = tmp_path / "began", tmp_path / "cleaned"
    session = (
        "import signal, sys, time\nfrom pathlib import Path\nbegan, cleaned = map(Path, sys.argv[1:])\n"
        "def end(*_):\n    cleaned.touch()\n    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('under way', flush=True)\nbegan.touch()\ntime.sleep(600)"
    )
    code = (
        "import signal, sys, side_by_side\nsignal.signal(signal.SIGTERM, side_by_side._stop)\n"
        "job = side_by_side.Job('long', [sys.executable, '-c', *sys.argv[1:]])\nside_by_side.run([job])"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", code, session, str(began), str(cleaned)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(side_by_side.__file__).parent,
    )
    until(began.exists, "the session")
    runner.send_signal(signal.SIGTERM)
    assert "under way\n" in runner.communicate(timeout=60)[0]
    assert (runner.returncode, cleaned.exists()) == (143, True)


@pytest.mark.parametrize("everything", [True, False])
def test_every_module_is_in_one_session(everything: bool) -> None:
    commands = [word for job in suite(everything=everything) for word in job.command]
    for path in side_by_side.TESTS.glob("**/test_*.py"):
        assert commands.count(str(path.relative_to(side_by_side.TESTS.parent))) == 1, path


def test_a_browser_s_tests_share_no_session_with_a_server_s() -> None:
    sessions = [
        {word.split("/")[1] for word in job.command if word.startswith("tests/")} for job in suite(everything=True)
    ]
    assert not any({"ui", "server_extension"} <= folders for folders in sessions)


def test_the_longest_group_is_split_into_sessions_that_take_as_long_as_each_other() -> None:
    seconds = {"a": 50.0, "b": 30.0, "c": 20.0, "d": 1.0}
    assert split(seconds, 2) == [["a", "d"], ["b", "c"]]
    assert split(seconds, 1) == [["a", "b", "c", "d"]]


def test_what_a_run_took_plans_the_next_one_with_and_without_its_thorough_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "FILE", tmp_path / "durations.json")
    seconds = {"tests/a.py::x": 20.04, "tests/a.py::y": 3.0, "tests/b.py::z": 0.5, "tests/c.py::t": 30.0}
    ran = Outcomes(seconds=seconds, thorough=["tests/a.py::x", "tests/c.py::t"])
    costs.recorded(ran, {"every benchmark": 200.0}).write()
    names = ["tests/a.py", "tests/c.py", "every benchmark"]
    assert Durations.read().of(names, everything=True) == dict(zip(names, (23.0, 30.0, 200.0), strict=True))
    assert Durations.read().of(names[:2], everything=False) == {"tests/a.py": 3.0, "tests/c.py": 0.0}
    assert Durations.read().of(["tests/new.py"], everything=False) == {"tests/new.py": costs._SHORT_S}


def test_the_end_says_what_suites_cost_and_which_long_tests_have_no_marker(
    suite_of: Callable[[str], Job], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "_LONG_S", 0.0)
    burn = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'for _ in range(10**7): pass'])"
    text = f"def test_burns():\n    exec({burn!r})\n@pytest.mark.slow('why')\ndef test_may(): pass\n"
    assert run([suite_of(text), _python("other", burn)]) == 0
    said = capfd.readouterr().out
    assert re.search(r"^tests +2 tests +\d+ s of CPU", said, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d s  tests/test_it.py::test_burns$", said, re.MULTILINE)
    assert re.search(r"^other +1 tests +\d+ s of CPU", said, re.MULTILINE)
    assert "without a marker `thorough` or `slow`\ntests/test_it.py::test_burns\n\n" in said


def test_the_cpu_time_of_orphans_counts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = tmp_path / "ended"
    burn = f"import time\nwhile time.process_time() < 1: pass\nopen({str(ended)!r}, 'w')"
    spawn = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {burn!r}], start_new_session=True)"
    wait = (
        f"import subprocess, sys, time\nfrom pathlib import Path\nsubprocess.run([sys.executable, '-c', {spawn!r}])\n"
        f"while not Path({str(ended)!r}).exists(): time.sleep(0.01)"
    )
    assert run([_python("orphan", wait)]) == 0
    cost = re.search(r"orphan: passed in \d+ s \((\d+) s of CPU\)", capfd.readouterr().out)
    assert cost is not None
    assert int(cost[1]) >= 1


def test_what_a_session_leaves_behind_is_killed_and_fails_it(capfd: pytest.CaptureFixture[str]) -> None:
    left = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    assert run([_python("left", left)]) == 1
    assert "left behind, and killed: process " in capfd.readouterr().out


@pytest.fixture
def suite_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Job]:
    """``suite_of(text)``: a session of one file of tests with this text, in a project of its own."""
    beds = Path(side_by_side.__file__).parent
    (tmp_path / "conftest.py").write_text(
        f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {str(beds)!r})\nimport outcomes\n"
        "def pytest_addoption(parser):\n    parser.addoption(outcomes.OPTION, type=Path)\n"
        "def pytest_configure(config):\n"
        "    config.addinivalue_line('markers', 'slow(reason)')\n    if path := config.getoption(outcomes.OPTION):\n"
        "        config.pluginmanager.register(outcomes.OutcomesPlugin(path))\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra --tb=short\n")
    (tmp_path / "tests").mkdir()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of what a small session costs
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(side_by_side, "TESTS", tmp_path / "tests")

    def make(text: str) -> Job:
        (tmp_path / "tests" / "test_it.py").write_text("import pytest\nfrom pathlib import Path\n" + text)
        return Job("tests", [sys.executable, "-m", "pytest", "tests"], is_pytest=True)

    return make


def test_what_is_skipped_or_broken_is_counted_and_every_failure_is_named(
    suite_of: Callable[[str], Job], capfd: pytest.CaptureFixture[str]
) -> None:
    job = suite_of(
        "@pytest.mark.parametrize('x', ['a b', 'c::d'])\ndef test_called(x): assert x == 'c::d'\n"
        "@pytest.fixture\ndef broken(): assert 0\ndef test_set_up(broken): pass\n"
        "@pytest.fixture(scope='module', autouse=True)\ndef left():\n    yield\n    assert 0\n"
        "@pytest.mark.skip\ndef test_skipped(): pass\n"
    )
    assert run([job]) == 1
    said = capfd.readouterr().out
    whys = [why.split("\n#####")[0] for why in said.split("##### why ")[1:]]
    assert ["assert 'a b' == 'c::d'" in why for why in whys] == [True, False, False]
    end = said.splitlines()
    assert end[-3].startswith("##### FAILED tests/test_it.py::test_called[a b]: AssertionError: assert 'a b' == 'c::d'")
    assert end[-2] == "##### FAILED tests/test_it.py::test_set_up and 1 more: assert 0"
    assert end[-1] == "1 passed, 3 failed, 1 skipped"  # what a module leaves behind counts as one
    in_short = [end.index(f"tests/test_it.py{test}", -30) for test in ("::test_called[a b]", "::test_set_up", "")]
    assert [end[line + 1].split("assert ")[-1] for line in in_short] == ["'a b' == 'c::d'", "0", "0"]


@pytest.mark.parametrize(
    "text", ["import os\ndef test_dies(): os._exit(1)", "def test_dies(): pytest.exit('no', 3)", "1/0"]
)
def test_a_session_without_a_summary_fails_whatever_its_tests_did(
    text: str, suite_of: Callable[[str], Job], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([suite_of(text)]) == 1
    assert capfd.readouterr().out.splitlines()[-2].startswith("##### FAILED tests")


def test_what_is_no_session_of_pytest_counts_as_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([_python("good", ""), _python("bad", "raise SystemExit(2)")]) == 1
    assert capfd.readouterr().out.splitlines()[-2:] == ["##### FAILED bad: exit status 2", "1 passed, 1 failed"]


def test_in_ci_a_missing_browser_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook alone: a session that collects nothing costs as much as 4 s of CPU."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", "true")
    hooks = runpy.run_path(str(side_by_side.TESTS / "ui" / "conftest.py"))
    with pytest.raises(pytest.UsageError, match="no chromium here"):
        hooks["pytest_collection_modifyitems"]([])
