"""A skipped test fails in CI, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import skips

_TESTS = """
import pytest
def test_runs(): pass
def test_lacks(): pytest.importorskip("no_such_library")
@pytest.fixture
def root(): pytest.skip("only root can mount")
def test_mounts(root): pass
@pytest.mark.skipif(True, reason="needs an NVIDIA GPU")
def test_gpu(): pass
@pytest.mark.xfail
def test_known(): assert 0
"""


@pytest.mark.parametrize(
    ("ci", "end"),
    [("true", "1 failed, 1 passed, 1 skipped, 1 xfailed, 2 errors"), ("", "1 passed, 4 skipped, 1 xfailed")],
)
def test_in_ci_what_is_missing_is_an_error(tmp_path: Path, ci: str, end: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(skips.__file__).parent)!r})\nimport skips\n"
        "def pytest_configure(config):\n    skips.SkipsFail.register(config)\n"
    )
    (tmp_path / "test_all.py").write_text(_TESTS)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_library')\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False
    )
    assert end in done.stdout.splitlines()[-1], done.stdout
    assert ("could not import 'no_such_library'" in done.stdout) == bool(ci)
