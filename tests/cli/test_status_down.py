"""``status`` where nobody answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_gpu_release.cli.main import main


def test_a_cluster_that_is_not_there_is_not_one_without_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(tmp_path))
    monkeypatch.delenv("JUPYTER_GPU_URL", raising=False)
    assert main(["status", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["gateway"]["up"] is False
    assert document["gpus"] is document["nodes"] is document["runs"] is None
