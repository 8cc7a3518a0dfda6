"""Whoever follows one cell through the system need not open all of its files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from file_trace import FileTrace
from kernel_bed import Notebook

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded

pytestmark = pytest.mark.thorough

#: files with a function that runs between submission and receipt, in any process, and not also while nothing is asked
_MOST_FILES = 147
#: of the scheduler, whose filters, orders and vetoes are a small file each
_MOST_OF_SCHEDULER = 26
#: what follows a run a moment later falls into one run or another, and not into each
_RUNS = 20
#: on a busy machine it would fall into the next run instead, and so into each, or into what is seen idle
_FOLLOWS_S = 2.0
#: what looks around does so at least once in this time; on a busy machine it falls into every run
_LOOKS_S = 12.0
_PROCESSES = {
    "kernel": "kernel/runs/foreground.py",
    "gateway": "gateway/dispatch/lifecycle.py",
    "agent": "node/agent/run.py",
    "supervisor": "node/supervisor/supervisor.py",
    "rank": "node/rank/cell.py",
}


def test_one_cell_passes_few_files(own_home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = FileTrace(tmp_path / "trace")
    search = [str(trace.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(search))
    start_embedded(home=own_home, asked=StartOptions(simulated=1), progress=print)
    folder = tmp_path / "notebook"
    folder.mkdir()
    notebook = Notebook(folder)
    try:
        notebook.ok("%%gpu_train\nx = 0")  # connects
        passed = []
        for _ in range(_RUNS):
            time.sleep(_FOLLOWS_S)
            passed.append(_files_passed(trace, lambda: notebook.ok("%%gpu_train\nx = 1")))
        time.sleep(_FOLLOWS_S)
        idle = _files_passed(trace, lambda: time.sleep(_LOOKS_S))
    finally:
        notebook.close()
    files = set.intersection(*passed)
    assert set(_PROCESSES.values()) <= files, "the trace is not in every process"
    scheduler = {file for file in files if file.startswith("scheduling/")}
    assert len(scheduler) <= _MOST_OF_SCHEDULER, "\n".join(sorted(scheduler))
    files -= scheduler | idle
    assert len(files) <= _MOST_FILES, f"{len(files)} files:\n" + "\n".join(sorted(files))


def _files_passed(trace: FileTrace, work: Callable[[], object]) -> set[str]:
    trace.begin()
    work()
    return set(trace.end())
