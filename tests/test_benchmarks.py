"""What every benchmark shares; each is run by ``make test-all`` with ``--quick``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
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
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr == (
        "benchmark sidebar did not run: it needs a Chromium that is on the path (Debian: apt install chromium)\n"
    )


def test_a_part_that_a_benchmark_does_not_have_is_refused_with_those_that_it_has() -> None:
    of_sidebar = "no part tabs (crowd, crowd-visible, start, visible)"
    for name, said in (("sidebar", of_sidebar), ("stream", "no part tabs (it is one)")):
        command = [sys.executable, "-m", "benchmarks", name, "--part", "tabs"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 1
        assert said in done.stderr


@pytest.mark.thorough
def test_a_benchmark_that_is_ended_ends_its_cluster(tmp_path: Path, until: Callable[..., None]) -> None:
    """``timeout`` and ``pkill`` send more than one signal, and to all of its processes."""
    command = [sys.executable, "-m", "benchmarks", "stream", "--quick"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "JUPYTER_GPU_PRELOAD": "numpy"}
    with open(tmp_path / "said", "w") as said:
        benchmark = subprocess.Popen(
            command, cwd=ROOT, env=environment, start_new_session=True, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: list(tmp_path.glob("jgr-bench-*/home/connection.json")), "its cluster")
        os.killpg(benchmark.pid, signal.SIGTERM)
        until(lambda: _stops(benchmark.pid), "it stops its cluster")
        os.killpg(benchmark.pid, signal.SIGTERM)
        assert benchmark.wait(120) == 128 + signal.SIGTERM, (tmp_path / "said").read_text()
    finally:
        benchmark.kill()
    assert not list(tmp_path.glob("jgr-bench-*"))


def _stops(benchmark: int) -> bool:
    return any("stop" in child.cmdline() for child in psutil.Process(benchmark).children())
