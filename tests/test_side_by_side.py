"""The runner of ``make test``."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import side_by_side
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
    tests = "\n".join(
        f"for n in range({count}): print('{word}', n)" for word, count in (("tests/x.py:7: in x", 1), ("trace", 40))
    )
    summary = "print('=== short test summary info ===\\nSKIPPED none\\nFAILED test_a.py::x\\nERROR test_b.py::y')"
    bad = f"{tests}\n{summary}\nprint('1 failed')\nraise SystemExit(1)"
    broken = _python("broken", "raise SystemExit('no')")
    assert run([_python("good", "print('FAILED to fail')"), _python("bad", bad), broken], at_once=1) == 1
    end = capfd.readouterr().out.split("##### why bad: FAILED (exit status 1)")[1]
    why, after = end.split("##### why broken: FAILED (exit status 1)")
    traces = [f"trace {n}" for n in range(40)]
    assert why.splitlines()[1:-1] == ["tests/x.py:7: in x 0", *traces, "FAILED test_a.py::x", "ERROR test_b.py::y"]
    assert after.splitlines()[1] == "no"
    assert "FAILED to fail" not in end


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
        stdout=subprocess.PIPE, text=True, cwd=Path(side_by_side.__file__).parent,
    )  # fmt: skip
    until(began.exists, "the session")
    runner.send_signal(signal.SIGTERM)
    assert "under way\n" in runner.communicate(timeout=60)[0]
    assert (runner.returncode, cleaned.exists()) == (143, True)


def test_every_test_is_in_one_session() -> None:
    commands = [word for job in suite() for word in job.command]
    for path in side_by_side.TESTS.glob("**/test_*.py"):
        top = side_by_side.TESTS / path.relative_to(side_by_side.TESTS).parts[0]
        assert commands.count(str(top)) == (top.name != "ui"), top
