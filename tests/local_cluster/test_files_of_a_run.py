"""Whoever follows one cell through the system need not open all of its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from file_trace import FileTrace
from kernel_bed import Notebook

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded

pytestmark = pytest.mark.thorough

#: files with a function that runs between submission and receipt, in any process
_MOST_FILES = 168
#: what waits or looks around, or follows a run a moment later: it falls into every run on some machines only
_AT_TIMES = {
    "node/ipc/notice.py",
    "node/ipc/text_journal.py",
    "gateway/db/rows.py",
    "gateway/results/lineage.py",
    "gateway/cluster/agents.py",
    "protocol/rest.py",
}
#: of the scheduler, whose filters, orders and vetoes are a small file each
_MOST_OF_SCHEDULER = 26
#: what looks around every few seconds falls into one run or another, and not into each
_RUNS = 20
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
        passed = [_files_of_a_run(trace, notebook) for _ in range(_RUNS)]
    finally:
        notebook.close()
    files = set.intersection(*passed)
    assert set(_PROCESSES.values()) <= files, "the trace is not in every process"
    scheduler = {file for file in files if file.startswith("scheduling/")}
    assert len(scheduler) <= _MOST_OF_SCHEDULER, "\n".join(sorted(scheduler))
    files -= scheduler | _AT_TIMES
    assert len(files) <= _MOST_FILES, f"{len(files)} files:\n" + "\n".join(sorted(files))


def _files_of_a_run(trace: FileTrace, notebook: Notebook) -> set[str]:
    trace.begin()
    notebook.ok("%%gpu_train\nx = 1")
    return set(trace.end())
