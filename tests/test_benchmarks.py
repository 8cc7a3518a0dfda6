"""What every benchmark shares; each is run by ``make test`` with ``--quick``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.bed import manifest_of
from benchmarks.metrics import METRICS, check
from benchmarks.report import Report

ROOT = Path(__file__).parents[1]


def test_a_manifest_is_waited_for_until_it_says_that_the_lease_is_gone(tmp_path: Path) -> None:
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(manifest_of(tmp_path, 60)))
    reader.start()
    for document in ({"run": 1}, {"run": 1, "gone_at": 2.0, "outcome": {"status": "ok"}}):
        (tmp_path / "new").write_text(json.dumps(document))
        (tmp_path / "new").rename(tmp_path / "manifest.json")
    reader.join(60)
    assert found == [document]


def test_a_document_without_one_of_its_metrics_is_refused() -> None:
    report = Report("release", {"lease_gone": {}})
    with pytest.raises(RuntimeError, match="lease_gone_1gib"):
        check(report)
    assert set(METRICS) >= {"start", "release", "stream", "transfer", "gang", "server", "sidebar"}


def test_a_benchmark_that_cannot_run_here_says_why_in_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "sidebar"],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "benchmark sidebar did not run: it needs a Chromium that is on the path (Debian: apt install chromium)\n"
    )
