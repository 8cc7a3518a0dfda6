"""Tab in a shell, as argcomplete asks: the command itself, with the line in its environment."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_release.cli.authoring.completion import Runs
from jupyter_gpu_release.client import cluster_facts

_COMMAND = Path(sys.executable).parent / "jupyter-gpu"


@pytest.fixture
def tab(tmp_path: Path) -> Callable[[str], list[str]]:
    """The words that a shell would show, where no cluster is; in a folder with one file."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "a-file").touch()

    def ask(line: str) -> list[str]:
        answer = tmp_path / "answer"
        environment = {
            "_ARGCOMPLETE": "1",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
            "COMP_TYPE": "9",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
            "JUPYTER_GPU_HOME": str(tmp_path / "home"),
        }
        command = [_COMMAND] if line.startswith("jupyter-gpu") else [_COMMAND.with_name("jupyter")]
        subprocess.run(command, env={**os.environ, **environment}, cwd=work, check=True, timeout=60)
        return answer.read_text().strip().split("\v")

    return ask


def test_commands_and_options(tab: Callable[[str], list[str]]):
    assert tab("jupyter-gpu st") == ["start", "stop", "status"]
    assert tab("jupyter gpu can") == ["cancel"]
    assert tab("jupyter-gpu start --s") == ["--simulated-gpus", "--store", "--slurm"]
    assert tab("jupyter-gpu runs ") == ["show", "pin", "unpin", "export", "import"]
    assert tab("jupyter-gpu runs import a") == ["a-file"]
    assert tab("jupyter-gpu runs show a") == tab("jupyter-gpu start --gpus ") == [""]
    assert tab("jupyter-gpu cancel ") == [""], "there is no cluster"


def test_runs_with_what_they_were(monkeypatch: pytest.MonkeyPatch):
    row = {"gpus": 1, "notebook": "a/b.ipynb", "submitted_at": 0.0}
    rows: list[dict[str, Any]] = [
        row | {"run": "2", "state": "running", "name": "tuning"},
        row | {"run": "1", "state": "failed", "name": ""},
    ]
    monkeypatch.setattr(cluster_facts, "_ask", lambda find, path: {"runs": rows})
    assert list(Runs(live=False)()) == ["last", "2", "1"]
    assert Runs(live=True)()["2"].startswith("tuning · running · 1 GPU · ")
    assert list(Runs(live=True)()) == ["last", "2"]
    for thread in threading.enumerate():
        if thread.name == "gpu-facts":
            thread.join(60)
